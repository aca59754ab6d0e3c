"""The table of instance types, in itself and beside EC2's own names."""

from __future__ import annotations

import pytest

from infra.hardware import INSTANCE_TYPES, instance_type, monthly


def test_every_figure_has_a_source_and_a_sensible_size() -> None:
    for name, kind in INSTANCE_TYPES.items():
        assert kind.name == name
        assert kind.source
        assert kind.gpu.source
        assert kind.gpus in (1, 2, 4, 8)
        assert 20 <= kind.gpu.memory_gb <= 300
        assert kind.efa_interfaces >= 0
        assert kind.usd_per_hour is None or 0.2 < kind.usd_per_hour / kind.gpus < 30


@pytest.mark.parametrize(
    ("name", "vcpus", "quota", "memory"),
    # Amazon EC2 User Guide, accelerated computing instances.
    [("p5.48xlarge", 192, "P", 640), ("p4d.24xlarge", 96, "P", 320), ("g6e.2xlarge", 8, "G", 45)],
)
def test_what_the_name_says(name: str, vcpus: int, quota: str, memory: float) -> None:
    kind = instance_type(name)
    assert (kind.vcpus, kind.quota_family, kind.memory_gb) == (vcpus, quota, memory)


def test_eight_bits_count_double_where_the_gpu_computes_in_them() -> None:
    assert instance_type("p5.48xlarge").gpu.tflops(1) == 2 * 990
    assert instance_type("p5.48xlarge").gpu.tflops(2) == 990
    assert instance_type("p4d.24xlarge").gpu.tflops(1) == 312
    assert instance_type("p6-b300.48xlarge").gpu.tflops(1) is None


def test_an_unknown_type_is_named_with_its_neighbours() -> None:
    with pytest.raises(ValueError, match=r"'p5\.24xlarge' is not in the table.*take one of p5\.4xlarge, p5\.48xlarge$"):
        instance_type("p5.24xlarge")
    with pytest.raises(ValueError, match=r"g5\.12xlarge, "):
        instance_type("t3.micro")


def test_a_month_has_730_hours() -> None:
    assert monthly(2.0) == 1460
