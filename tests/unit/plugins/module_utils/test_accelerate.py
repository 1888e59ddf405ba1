# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Optional

import pytest
import yaml

from ansible_collections.torchfleet.cluster.plugins.module_utils import _accelerate
from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import Cluster, ClusterError, build_cluster


def cluster(*gpus: int, slots: Optional[int] = None, address: str = "10.0.0.{}", **options: Any) -> Cluster:
    """A node for each number: so many GPUs has it."""
    return build_cluster(
        [
            {
                "name": f"n{number}",
                "address": address.format(number),
                "gpus": [{"index": index} for index in range(count)],
                "slots": slots,
            }
            for number, count in enumerate(gpus, 1)
        ],
        **options,
    )


def config(of: Cluster, node: str, **raw: Any) -> Any:
    return yaml.safe_load(_accelerate.render(of, of.node(node), _accelerate.options(raw)))


def problems(**raw: Any) -> str:
    with pytest.raises(ClusterError) as error:
        _accelerate.options(raw)
    return str(error.value)


def test_a_node_s_own_file() -> None:
    assert config(cluster(2, 2, 2, head="n2", master_port=29700), "n3", mixed_precision="bf16") == {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "MULTI_GPU",
        "num_machines": 3,
        "num_processes": 6,
        "machine_rank": 2,
        "main_process_ip": "10.0.0.2",
        "main_process_port": 29700,
        "mixed_precision": "bf16",
        "use_cpu": False,
        "debug": False,
        "enable_cpu_affinity": False,
    }


def test_cpu_nodes_say_so_and_need_more_than_the_file() -> None:
    of = cluster(0, 0, slots=2)
    assert config(of, "n2", distributed_type="MULTI_CPU")["use_cpu"] is True
    args, env = _accelerate.launch_needs(of, _accelerate.options({"distributed_type": "MULTI_CPU"}))
    assert (args, env) == (("--multi_gpu",), {"ACCELERATE_USE_CPU": "true"})
    assert _accelerate.launch_needs(cluster(1, 1), _accelerate.options({})) == ((), {})


def test_deepspeed_on_each_node() -> None:
    section = config(
        cluster(2, 2),
        "n2",
        distributed_type="DEEPSPEED",
        zero_stage="3",
        zero3_init="yes",
        gradient_clipping="0.5",
        offload_param="cpu",
    )["deepspeed_config"]
    assert section == {
        "deepspeed_multinode_launcher": "standard",
        "zero_stage": 3,
        "zero3_init_flag": True,
        "gradient_clipping": 0.5,
        "gradient_accumulation_steps": 1,
        "offload_param_device": "cpu",
        "offload_optimizer_device": "none",
    }


def test_deepspeed_from_the_head_is_the_head_s_file_on_every_node() -> None:
    chosen = {"distributed_type": "DEEPSPEED", "deepspeed_launcher": "pdsh", "deepspeed_hostfile": "/etc/t/hostfile"}
    of = cluster(2, 2)
    assert config(of, "n1", **chosen) == config(of, "n2", **chosen)
    assert config(of, "n2", **chosen)["machine_rank"] == 0
    assert config(of, "n2", **chosen)["deepspeed_config"]["deepspeed_hostfile"] == "/etc/t/hostfile"


def test_a_deepspeed_file_speaks_for_itself() -> None:
    whole = config(cluster(2), "n1", distributed_type="DEEPSPEED", deepspeed_config_file="/etc/t/ds.json")
    assert "mixed_precision" not in whole
    assert whole["deepspeed_config"] == {
        "deepspeed_multinode_launcher": "standard",
        "deepspeed_config_file": "/etc/t/ds.json",
        "zero3_init_flag": False,
    }


@pytest.mark.parametrize(
    ("raw", "has", "has_not"),
    [
        ({}, {"fsdp_version": 2, "fsdp_reshard_after_forward": True}, "fsdp_sharding_strategy"),
        ({"fsdp_sharding_strategy": "SHARD_GRAD_OP"}, {"fsdp_reshard_after_forward": False}, "fsdp_min_num_params"),
        (
            {"fsdp_version": 1, "fsdp_sharding_strategy": "HYBRID_SHARD"},
            {"fsdp_version": 1, "fsdp_sharding_strategy": "HYBRID_SHARD"},
            "fsdp_reshard_after_forward",
        ),
        (
            {"fsdp_transformer_layer_cls": ["LlamaDecoderLayer", "Embedding"]},
            {"fsdp_transformer_layer_cls_to_wrap": "LlamaDecoderLayer,Embedding"},
            "fsdp_min_num_params",
        ),
    ],
)
def test_fsdp(raw: Any, has: Any, has_not: str) -> None:
    section = config(cluster(2, 2), "n1", distributed_type="FSDP", **raw)["fsdp_config"]
    assert {key: section[key] for key in has} == has
    assert has_not not in section


def test_compiling() -> None:
    assert config(cluster(2), "n1", dynamo_backend="inductor", dynamo_use_dynamic=True)["dynamo_config"] == {
        "dynamo_backend": "INDUCTOR",
        "dynamo_mode": "default",
        "dynamo_use_fullgraph": False,
        "dynamo_use_dynamic": True,
    }
    assert "dynamo_config" not in config(cluster(2), "n1", dynamo_backend=False)  # `no` in plain YAML


@pytest.mark.parametrize("path", ["/a b/ds.json", '/a"b', "/a: b #c", "/ä/1e3", "/{{ x }}", "/a\\b"])
def test_paths_survive_yaml(path: str) -> None:
    whole = config(cluster(2), "n1", distributed_type="DEEPSPEED", deepspeed_config_file=path)
    assert whole["deepspeed_config"]["deepspeed_config_file"] == path


@pytest.mark.parametrize("clipping", [1, 1.0, 1e-6, 2.5e-7, 1e20])
def test_numbers_survive_yaml(clipping: float) -> None:
    read = config(cluster(2), "n1", distributed_type="DEEPSPEED", gradient_clipping=clipping)
    assert read["deepspeed_config"]["gradient_clipping"] == clipping


def test_ipv6() -> None:
    assert config(cluster(1, 1, address="fd00::{}"), "n2")["main_process_ip"] == "fd00::1"


@pytest.mark.parametrize(
    ("of", "kind", "said"),
    [
        (
            cluster(2, 4, 4),
            "MULTI_GPU",
            "divides num_processes evenly over its machines, and the slots differ: n1 has 2, n2 has 4, n3 has 4. "
            "Set launch_launcher to torchrun",
        ),
        (cluster(2, 4), "DEEPSPEED", "the slots differ: n1 has 2, n2 has 4"),
        (cluster(0, 0), "MULTI_GPU", "no GPU is known on n1, n2 (torchfleet_gpus, from gpu_facts)"),
        (cluster(1, 0), "FSDP", "no GPU is known on n2"),
        (cluster(1, 0), "DEEPSPEED", "no GPU is known on n2"),
        (cluster(2, 2, slots=4), "MULTI_GPU", "n1: 4 slots on 2 GPUs"),
    ],
)
def test_clusters_that_accelerate_cannot_start_are_refused(of: Cluster, kind: str, said: str) -> None:
    with pytest.raises(ClusterError) as error:
        config(of, "n1", distributed_type=kind)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("of", "kind"), [(cluster(2, 4, slots=2), "MULTI_GPU"), (cluster(0, 0), "DEEPSPEED"), (cluster(0, 0), "MULTI_CPU")]
)
def test_clusters_that_it_can_start_are_not(of: Cluster, kind: str) -> None:
    assert config(of, "n2", distributed_type=kind)["num_processes"] == of.world_size


# Ports are the Cluster's own business: none that accelerate cannot use gets this far.
@pytest.mark.parametrize(
    ("port", "said"),
    [
        (22, "wanted an unprivileged port (1024 to 65535)"),
        (1023, "wanted an unprivileged port"),
        (0, "wanted an unprivileged port"),
        (65536, "wanted an unprivileged port"),
        ("rdzv", "wanted an unprivileged port"),
        (None, "wanted an unprivileged port"),
        (2222, "is where sshd of n2 listens: choose another"),
    ],
)
def test_ports(port: Any, said: str) -> None:
    hosts = [{"name": "n1", "address": "10.0.0.1"}, {"name": "n2", "address": "10.0.0.2", "ssh_port": 2222}]
    with pytest.raises(ClusterError) as error:
        build_cluster(hosts, master_port=port)
    assert f"torchfleet_master_port {port}" in str(error.value) or f"torchfleet_master_port is {port!r}" in str(
        error.value
    )
    assert said in str(error.value)


DS = {"distributed_type": "DEEPSPEED"}
FSDP = {"distributed_type": "FSDP"}


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"distributed_typ": "FSDP"}, "no option 'distributed_typ' here, did you mean distributed_type?"),
        ({"xyzzy": 1}, "no option 'xyzzy' here; there are: distributed_type, "),
        ({"distributed_type": "MULTI_TPU"}, "wanted one of MULTI_GPU, MULTI_CPU, DEEPSPEED, FSDP"),
        ({"distributed_type": 3}, "distributed_type is 3, wanted text"),
        ({"mixed_precision": "int8"}, "mixed_precision is 'int8', wanted one of no, fp16, bf16, fp8"),
        ({"mixed_precision": "fp8"}, "mixed_precision fp8 needs fp8_backend"),
        ({"fp8_backend": "te"}, "mixed_precision is not fp8"),
        ({"distributed_type": "MULTI_CPU", "mixed_precision": "fp16"}, "which CPUs do not train in"),
        ({"dynamo_backend": "magic"}, "dynamo_backend is 'magic', wanted one of"),
        ({"dynamo_mode": "default"}, "dynamo_mode is given but dynamo_backend is not"),
        ({"cpu_affinity": "perhaps"}, "cpu_affinity is 'perhaps', wanted true or false"),
        ({"zero_stage": 2}, "zero_stage works with distributed_type DEEPSPEED alone, and that is MULTI_GPU"),
        ({**DS, "fsdp_version": 2}, "fsdp_version works with distributed_type FSDP alone"),
        ({**DS, "zero_stage": 4}, "zero_stage is 4, wanted 0, 1, 2 or 3"),
        ({**DS, "zero_stage": "two"}, "zero_stage is 'two', wanted a whole number"),
        ({**DS, "zero_stage": 2.5}, "zero_stage is 2.5, wanted a whole number"),
        ({**DS, "zero_stage": True}, "zero_stage is True, wanted a whole number"),
        ({**DS, "zero3_init": True}, "zero3_init belongs to ZeRO stage 3, and zero_stage is 2"),
        ({**DS, "zero_stage": 1, "offload_param": "cpu"}, "offload_param belongs to ZeRO stage 3"),
        ({**DS, "offload_optimizer": "nvme"}, "offload_optimizer is 'nvme', wanted one of none, cpu"),
        ({**DS, "gradient_clipping": 0}, "gradient_clipping is 0, wanted a norm above 0"),
        ({**DS, "gradient_clipping": float("nan")}, "gradient_clipping is nan, wanted a norm above 0"),
        ({**DS, "gradient_clipping": "auto"}, "gradient_clipping is 'auto', wanted a number"),
        ({**DS, "gradient_accumulation_steps": 0}, "gradient_accumulation_steps is 0, wanted 1 or more"),
        (
            {**DS, "deepspeed_launcher": "openmpi"},
            "deepspeed_launcher is 'openmpi', wanted one of standard, pdsh, nossh",
        ),
        ({**DS, "deepspeed_launcher": "pdsh"}, "deepspeed_launcher pdsh needs deepspeed_hostfile"),
        ({**DS, "deepspeed_hostfile": "/etc/hf"}, "deepspeed_hostfile is read with deepspeed_launcher pdsh or nossh"),
        (
            {**DS, "deepspeed_launcher": "pdsh", "deepspeed_hostfile": "hostfile"},
            "deepspeed_hostfile is 'hostfile', wanted an absolute path",
        ),
        (
            {**DS, "deepspeed_config_file": "/ds.json", "gradient_clipping": 1, "mixed_precision": "bf16"},
            "gradient_clipping is given beside deepspeed_config_file",
        ),
        ({**DS, "deepspeed_config_file": "/a\nb"}, "wanted an absolute path"),
        ({**FSDP, "fsdp_version": 3}, "fsdp_version is 3, wanted 1 or 2"),
        ({**FSDP, "fsdp_sharding_strategy": "NO_SHARD"}, "fsdp_sharding_strategy NO_SHARD is FSDP 1's"),
        ({**FSDP, "fsdp_state_dict_type": "LOCAL_STATE_DICT"}, "LOCAL_STATE_DICT is FSDP 1's"),
        ({**FSDP, "fsdp_min_num_params": 1000}, "with fsdp_auto_wrap_policy SIZE_BASED_WRAP only"),
        ({**FSDP, "fsdp_transformer_layer_cls": 5}, "fsdp_transformer_layer_cls is 5, wanted a list of names"),
        (
            {**FSDP, "fsdp_transformer_layer_cls": "A", "fsdp_auto_wrap_policy": "NO_WRAP"},
            "with fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP only",
        ),
    ],
)
def test_wrong_options(raw: Any, said: str) -> None:
    assert said in problems(**raw)


def test_all_problems_are_told_at_once() -> None:
    text = problems(**DS, zero_stage=7, gradient_clipping=-1, deepspeed_launcher="pdsh")
    assert len(text.splitlines()) == 3
