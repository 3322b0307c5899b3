"""What the runners share: the parts that other libraries use."""
