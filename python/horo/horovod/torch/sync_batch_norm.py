from horo.torch.sync_batch_norm import SyncBatchNorm

__all__ = ["SyncBatchNorm"]
