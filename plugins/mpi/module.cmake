horo_plugin(mpi)
