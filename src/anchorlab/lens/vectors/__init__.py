"""What vectors of the stream hold."""
