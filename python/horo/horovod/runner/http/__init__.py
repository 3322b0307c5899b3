"""Where Horovod has its rendezvous."""
