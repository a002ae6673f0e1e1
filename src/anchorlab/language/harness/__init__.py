"""The retrieval questions in other harnesses: tasks for Inspect, and a scorer for lm-evaluation-harness."""
