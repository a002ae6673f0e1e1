"""What weight matrices hold."""
