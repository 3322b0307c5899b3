from horo.torch.elastic import ElasticSampler, TorchState, run

__all__ = ["ElasticSampler", "TorchState", "run"]
