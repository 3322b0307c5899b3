"""Small parts of Horovod that other libraries import and that horo has no use for itself. Reached as horovod.*."""
