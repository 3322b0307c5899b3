from horo.ray.coordinator import detect_nics, nics_to_env_var

__all__ = ["detect_nics", "nics_to_env_var"]
