horo_plugin(jax)
