from horo.torch.elastic.sampler import ElasticSampler

__all__ = ["ElasticSampler"]
