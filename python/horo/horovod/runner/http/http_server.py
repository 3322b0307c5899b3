from horo.legacy.rendezvous import RendezvousServer

__all__ = ["RendezvousServer"]
