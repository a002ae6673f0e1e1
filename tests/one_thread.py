"""Keeps the server of processes on one thread: its children would wait for ever for the others, which stay behind."""

import torch

torch.set_num_threads(1)
