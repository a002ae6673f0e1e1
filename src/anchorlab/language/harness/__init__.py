"""The retrieval questions in other harnesses: tasks for Inspect, and answers read for lm-evaluation-harness."""
