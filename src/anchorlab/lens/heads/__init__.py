"""What attention heads do, as numbers."""
