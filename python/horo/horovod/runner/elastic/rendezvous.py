from horo.legacy.rendezvous import RendezvousServer, create_rendezvous_handler

__all__ = ["RendezvousServer", "create_rendezvous_handler"]
