"""Muon for the matrices of the layers, AdamW for the rest; all state in f32."""

import torch

ADAM_ONLY = ("embed_tokens", "norm", "A_log", "dt_bias", "conv1d", "mlp.gate.", "shared_expert_gate", "in_proj_a", "in_proj_b")


def orthogonal(g, steps: int = 5):
    """The nearest matrix with equal singular values, about (Newton-Schulz), for a stack [S, R, C]."""
    x = g.bfloat16() if g.is_cuda else g.float()
    tall = x.shape[1] > x.shape[2]
    x = x.transpose(1, 2) if tall else x
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        a = x @ x.transpose(1, 2)
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return x.transpose(1, 2) if tall else x


class Optimizer:
    def __init__(self, parameters: dict, decay: float = 0.1, compiled: bool = False):
        self.decay = decay
        self.adam = [p for n, p in parameters.items() if any(part in n for part in ADAM_ONLY)]
        self.matrices = [p for n, p in parameters.items() if not any(part in n for part in ADAM_ONLY)]
        self.mean = [torch.zeros_like(p) for p in self.adam]
        self.square = [torch.zeros_like(p) for p in self.adam]
        self.momentum = [torch.zeros_like(p) for p in self.matrices]
        self.groups = {}
        for i, p in enumerate(self.matrices):
            rows, cols = p.shape[-2:]
            halves = 2 if p.dim() == 3 and rows == cols else 1  # gate and up are two matrices
            self.groups.setdefault((rows // halves, cols), []).append(i)
        self.orthogonal = torch.compile(orthogonal, dynamic=False) if compiled else orthogonal
        self.steps = 0

    def state(self) -> dict:
        return {"mean": self.mean, "square": self.square, "momentum": self.momentum, "steps": self.steps}

    def load(self, state: dict) -> None:
        for name in ("mean", "square", "momentum"):
            torch._foreach_copy_(getattr(self, name), state[name])
        self.steps = state["steps"]

    @torch.no_grad()
    def step(self, rate: float, clip: float = 1.0) -> None:
        self.steps += 1
        grads = [p.grad for p in self.adam]
        scale = (clip / (torch.stack(torch._foreach_norm(grads)).norm() + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(grads, scale)
        b1, b2 = 0.9, 0.95
        torch._foreach_lerp_(self.mean, grads, 1 - b1)
        torch._foreach_mul_(self.square, b2)
        torch._foreach_addcmul_(self.square, grads, grads, 1 - b2)
        root = torch._foreach_sqrt(self.square)
        torch._foreach_div_(root, (1 - b2**self.steps) ** 0.5)
        torch._foreach_add_(root, 1e-10)
        torch._foreach_addcdiv_(self.adam, self.mean, root, value=-rate / (1 - b1**self.steps))
        grads = [p.grad for p in self.matrices]
        torch._foreach_lerp_(self.momentum, grads, 0.05)
        ahead = torch._foreach_lerp(grads, self.momentum, 0.95)
        torch._foreach_mul_(self.matrices, 1 - rate * self.decay)
        for (rows, cols), members in self.groups.items():
            stack = torch.cat([ahead[i].reshape(-1, rows, cols) for i in members])
            update = self.orthogonal(stack).float() * (-0.2 * rate * max(rows, cols) ** 0.5)
            for i, part in zip(members, update.split([self.matrices[i].numel() // (rows * cols) for i in members])):
                self.matrices[i].add_(part.reshape(self.matrices[i].shape))
        for p in self.adam + self.matrices:
            p.grad = None
