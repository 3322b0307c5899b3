from horo.torch.elastic import ElasticSampler

__all__ = ["ElasticSampler"]
