"""The one-layer model of the truncation paper's section 4.1, written out for autograd in a random orthonormal basis."""

import torch
from torch import Tensor

from anchorlab.theory.uniform_recall import Sequences


class OneLayer:
    def __init__(self, outputs: int, width: int) -> None:
        random = torch.Generator().manual_seed(0)

        def orthonormal() -> Tensor:
            drawn = torch.randn(width, outputs, generator=random, dtype=torch.float64)
            return torch.linalg.qr(drawn).Q.T  # [token width]

        self.embedding, self.unembedding = orthonormal(), orthonormal()
        self.key_query, self.value, self.feedforward = (
            torch.zeros(width, width, dtype=torch.float64, requires_grad=True) for _ in range(3)
        )

    def logits(self, sample: Sequences) -> Tensor:
        x = self.embedding[torch.from_numpy(sample.tokens.T.astype("int64"))]  # [sample position width]
        last = x[:, -1]
        scores = torch.einsum("bd,de,bte->bt", last, self.key_query.T, x)  # x_Tᵀ W_KQᵀ x_t = x_tᵀ W_KQ x_T
        attended = torch.einsum("bt,bte->be", scores.softmax(dim=1), x) @ self.value.T
        return (attended + last @ self.feedforward.T) @ self.unembedding.T

    def loss(self, sample: Sequences) -> Tensor:
        return torch.nn.functional.cross_entropy(self.logits(sample), torch.from_numpy(sample.targets))

    def projected(self, matrix: Tensor) -> Tensor:
        """W_U(j)ᵀ M W_E(k) `[output token]`."""
        return self.unembedding @ matrix @ self.embedding.T

    def set(self, matrix: Tensor, projections: Tensor) -> None:
        """Gives a matrix these projections `[output token]`."""
        with torch.no_grad():
            matrix.copy_(self.unembedding.T @ projections @ self.embedding)
