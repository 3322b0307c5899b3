from horo.torch.elastic import TorchState

__all__ = ["TorchState"]
