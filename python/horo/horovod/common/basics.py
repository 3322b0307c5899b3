from horo.legacy.basics import HorovodBasics

__all__ = ["HorovodBasics"]
