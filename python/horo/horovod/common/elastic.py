from horo.elastic import ObjectState, State, run_fn

__all__ = ["ObjectState", "State", "run_fn"]
