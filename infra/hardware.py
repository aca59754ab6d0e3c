"""What EC2's GPU instance types have: compute, bandwidth, memory, network, price. Pure data.

Each figure has its source. FLOPS and bandwidths are peaks of data sheets, without sparsity; what share of them an
engine reaches is infra.capacity's matter.
"""

from __future__ import annotations

from dataclasses import dataclass

# Where figures come from; a row names its own where it has another.
PRICES = "Karpenter's price list of 2026-07-20: Linux, on demand, us-east-1"
SHEETS = "NVIDIA's data sheets: dense tensor-core TFLOPS, memory bandwidth, NVLink or PCIe in one direction"
NETWORKS = "Amazon EC2 User Guide, accelerated computing instances: network bandwidth and EFA interfaces"

GB = 1e9
# As AWS's pricing calculator counts.
HOURS_OF_A_MONTH = 730


@dataclass(frozen=True)
class Gpu:
    """One GPU. None is a figure that nobody has verified: what needs it is refused, not guessed.

    `link_gb_s` is what one GPU sends to its neighbours in the same machine, in one direction. `fp8` says whether its
    tensor cores compute in 8 bits, at twice the rate of 16.
    """

    name: str
    memory_gb: float
    bf16_tflops: float | None
    memory_tb_s: float | None
    link_gb_s: float
    fp8: bool
    source: str = SHEETS

    def tflops(self, weight_bytes: float) -> float | None:
        """Peak for weights of so many bytes each; 8 bits count double where the GPU computes in them."""
        if self.bf16_tflops is None:
            return None
        return self.bf16_tflops * (2 if self.fp8 and weight_bytes <= 1 else 1)


@dataclass(frozen=True)
class InstanceType:
    """An instance type. `network_gbps` is of all interfaces; `usd_per_hour` None has no on-demand price."""

    name: str
    gpus: int
    gpu: Gpu
    network_gbps: float
    efa_interfaces: int
    usd_per_hour: float | None
    source: str = f"{PRICES}; {NETWORKS}"

    @property
    def family(self) -> str:
        """What comes before the size, such as `p5en`."""
        return self.name.partition(".")[0]

    @property
    def quota_family(self) -> str:
        """The letters by which EC2 counts quotas: `P` or `G`."""
        return self.name[0].upper()

    @property
    def vcpus(self) -> int:
        """Four for each `xlarge` of the size: so it is for every type here (EC2 User Guide, instance types)."""
        return 4 * int(self.name.partition(".")[2].removesuffix("xlarge") or 1)

    @property
    def memory_gb(self) -> float:
        """Of all its GPUs."""
        return self.gpus * self.gpu.memory_gb


A100_40 = Gpu("A100-40", 40, 312, 1.555, 300, fp8=False)
A100_80 = Gpu("A100-80", 80, 312, 2.039, 300, fp8=False)
H100 = Gpu("H100", 80, 990, 3.35, 450, fp8=True)
H200 = Gpu("H200", 141, 990, 4.8, 450, fp8=True)
B200 = Gpu("B200", 179, 2250, 8.0, 900, fp8=True)
B300 = Gpu("B300", 269, None, None, 900, fp8=True, source="memory only; FLOPS and bandwidth are not verified")
L4 = Gpu("L4", 24, 121, 0.3, 32, fp8=True)
L40S = Gpu("L40S", 45, 362, 0.864, 32, fp8=True)
A10G = Gpu("A10G", 24, 70, 0.6, 16, fp8=False, source=f"{SHEETS}; FLOPS are not verified")
RTX_PRO_6000 = Gpu(
    "RTX-PRO-6000", 96, 467.8, 1.6, 64, fp8=True, source="FLOPS by aiconfigurator (scaled); the server edition's sheet"
)

_ALL = (
    InstanceType("p5.4xlarge", 1, H100, 100, 1, 6.88),
    InstanceType("p5.48xlarge", 8, H100, 3200, 32, 55.04),
    InstanceType("p5e.48xlarge", 8, H200, 3200, 32, None, source=f"no on-demand price is listed; {NETWORKS}"),
    InstanceType("p5en.48xlarge", 8, H200, 3200, 16, 63.296),
    InstanceType("p4d.24xlarge", 8, A100_40, 400, 4, 21.9576),
    InstanceType("p4de.24xlarge", 8, A100_80, 400, 4, 27.447),
    InstanceType("p6-b200.48xlarge", 8, B200, 3200, 8, 113.9328),
    InstanceType("p6-b300.48xlarge", 8, B300, 6400, 16, 142.416),
    # The network of the smallest is its baseline, not the burst.
    InstanceType("g6e.2xlarge", 1, L40S, 5, 0, 2.242),
    InstanceType("g6e.12xlarge", 4, L40S, 100, 1, 10.493),
    InstanceType("g6e.48xlarge", 8, L40S, 400, 4, 30.131),
    InstanceType("g7e.12xlarge", 2, RTX_PRO_6000, 400, 1, 8.286),
    InstanceType("g7e.48xlarge", 8, RTX_PRO_6000, 1600, 4, 33.144),
    InstanceType("g6.12xlarge", 4, L4, 40, 0, 4.602),
    InstanceType("g6.48xlarge", 8, L4, 100, 0, 13.35),
    InstanceType("g5.12xlarge", 4, A10G, 40, 0, 5.672),
    InstanceType("g5.48xlarge", 8, A10G, 100, 0, 16.288),
)
INSTANCE_TYPES: dict[str, InstanceType] = {one.name: one for one in _ALL}


def instance_type(name: str) -> InstanceType:
    """The type of that name; raises ValueError naming the nearest ones."""
    if found := INSTANCE_TYPES.get(name):
        return found
    family = name.partition(".")[0]
    near = [one for one in INSTANCE_TYPES if one.startswith(f"{family}.")] or sorted(INSTANCE_TYPES)
    raise ValueError(f"{name!r} is not in the table of GPU instance types; take one of {', '.join(near)}")


def monthly(usd_per_hour: float) -> float:
    """US dollars of a month."""
    return usd_per_hour * HOURS_OF_A_MONTH
