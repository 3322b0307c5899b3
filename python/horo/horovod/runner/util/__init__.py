"""What launchers of other libraries use."""
