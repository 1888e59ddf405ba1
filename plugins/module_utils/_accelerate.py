# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Configuration files of `accelerate launch`, one a node, or one for the head where pdsh reaches the others.

Only keys that `accelerate launch --config_file` obeys are written (read in its 1.15.0: commands/launch.py and
utils/launch.py). `rdzv_backend` and `same_network`, for example, are parsed and then ignored.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass, fields
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import Cluster, ClusterError, Node

HEADER = "# Rendered by torchfleet.cluster from the inventory. Changes made here are overwritten.\n"

CHOICES: Mapping[str, Tuple[str, ...]] = {
    "distributed_type": ("MULTI_GPU", "MULTI_CPU", "DEEPSPEED", "FSDP"),
    "mixed_precision": ("no", "fp16", "bf16", "fp8"),
    "fp8_backend": ("te", "ao", "msamp"),
    "dynamo_mode": ("default", "reduce-overhead", "max-autotune"),
    "dynamo_backend": ("no", "eager", "aot_eager", "inductor", "cudagraphs", "onnxrt", "tensorrt", "tvm"),
    "deepspeed_launcher": ("standard", "pdsh", "nossh"),
    "offload_optimizer": ("none", "cpu"),
    "offload_param": ("none", "cpu"),
    "fsdp_sharding_strategy": ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"),
    "fsdp_auto_wrap_policy": ("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"),
    "fsdp_state_dict_type": ("SHARDED_STATE_DICT", "FULL_STATE_DICT", "LOCAL_STATE_DICT"),
}

# What a DeepSpeed configuration file says itself: accelerate stops the script where both say it.
_ZERO = (
    "zero_stage",
    "zero3_save_16bit_model",
    "offload_optimizer",
    "offload_param",
    "gradient_accumulation_steps",
    "gradient_clipping",
)
_DEEPSPEED = ("deepspeed_launcher", "deepspeed_hostfile", "deepspeed_config_file", "zero3_init", *_ZERO)


@dataclass(frozen=True)
class AccelerateOptions:
    """What a user may choose; hosts, ranks and ports are none of it. None leaves a choice to accelerate.

    `fsdp_transformer_layer_cls` names classes of the model. Paths are absolute, on the nodes.
    Raises ClusterError with every problem found.
    """

    distributed_type: str = "MULTI_GPU"
    mixed_precision: Optional[str] = None
    fp8_backend: Optional[str] = None
    dynamo_backend: Optional[str] = None
    dynamo_mode: Optional[str] = None
    dynamo_use_fullgraph: Optional[bool] = None
    dynamo_use_dynamic: Optional[bool] = None
    cpu_affinity: bool = False
    debug: bool = False
    deepspeed_launcher: Optional[str] = None
    deepspeed_hostfile: Optional[str] = None
    deepspeed_config_file: Optional[str] = None
    zero_stage: Optional[int] = None
    zero3_init: Optional[bool] = None
    zero3_save_16bit_model: Optional[bool] = None
    offload_optimizer: Optional[str] = None
    offload_param: Optional[str] = None
    gradient_accumulation_steps: Optional[int] = None
    gradient_clipping: Optional[float] = None
    fsdp_version: Optional[int] = None
    fsdp_sharding_strategy: Optional[str] = None
    fsdp_auto_wrap_policy: Optional[str] = None
    fsdp_transformer_layer_cls: Tuple[str, ...] = ()
    fsdp_min_num_params: Optional[int] = None
    fsdp_offload_params: Optional[bool] = None
    fsdp_state_dict_type: Optional[str] = None
    fsdp_cpu_ram_efficient_loading: Optional[bool] = None
    fsdp_activation_checkpointing: Optional[bool] = None

    def __post_init__(self) -> None:
        problems = _type_problems(self)
        if not problems:
            problems = [*_general_problems(self), *_deepspeed_problems(self), *_fsdp_problems(self)]
        if problems:
            raise ClusterError(problems)

    @property
    def from_head(self) -> bool:
        """Whether the launcher is started on the head alone and reaches the other nodes by itself."""
        return self.deepspeed_launcher == "pdsh"


def options(raw: Mapping[str, Any]) -> AccelerateOptions:
    """Options as an inventory has them: text where a number or a boolean is meant is read as such."""
    known = {item.name: str(item.type) for item in fields(AccelerateOptions)}
    problems = []
    chosen: Dict[str, Any] = {}
    for name, value in raw.items():
        if name not in known:
            close = difflib.get_close_matches(str(name), known, 1)
            meant = f", did you mean {close[0]}?" if close else f"; there are: {', '.join(known)}"
            problems.append(f"accelerate has no option {str(name)!r} here{meant}")
        elif value is not None:
            chosen[name] = _read(known[name], value)
    if problems:
        raise ClusterError(problems)
    return AccelerateOptions(**chosen)


def render(cluster: Cluster, node: Node, chosen: AccelerateOptions) -> str:
    """The configuration file of a node. Raises ClusterError with what `refusals` says."""
    problems = refusals(cluster, chosen)
    if problems:
        raise ClusterError(problems)
    config: Dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": chosen.distributed_type,
        "num_machines": len(cluster.nodes),
        "num_processes": cluster.world_size,  # accelerate wants the total over all machines
        "machine_rank": 0 if chosen.from_head else node.node_rank,
        "main_process_ip": cluster.master_address,
        "main_process_port": cluster.master_port,
        "use_cpu": chosen.distributed_type == "MULTI_CPU",
        "debug": chosen.debug,
        "enable_cpu_affinity": chosen.cpu_affinity,
    }
    if chosen.deepspeed_config_file is None:
        config["mixed_precision"] = chosen.mixed_precision or "no"
    sections = {
        "fp8_config": {"fp8_backend": chosen.fp8_backend},
        "dynamo_config": _dynamo(chosen),
        "deepspeed_config": _deepspeed(chosen) if chosen.distributed_type == "DEEPSPEED" else {},
        "fsdp_config": _fsdp(chosen) if chosen.distributed_type == "FSDP" else {},
    }
    for name, section in sections.items():
        given = {key: value for key, value in section.items() if value is not None}
        if given:
            config[name] = given
    return HEADER + _yaml(config)


def launch_needs(cluster: Cluster, chosen: AccelerateOptions) -> Tuple[Tuple[str, ...], Dict[str, str]]:
    """What no configuration file can say: options of `accelerate launch` and variables that must be there with it.

    Without the first pair a MULTI_CPU run is one lonely process a node that trains a world of 1 and exits 0.
    """
    if chosen.distributed_type == "MULTI_CPU":
        return ("--multi_gpu",), {"ACCELERATE_USE_CPU": "true"}
    if chosen.distributed_type == "DEEPSPEED" and not cluster.head.gpus:
        return (), {"DS_ACCELERATOR": "cpu"}
    return (), {}


def refusals(cluster: Cluster, chosen: AccelerateOptions) -> List[str]:
    """Why accelerate cannot start this cluster, one sentence per reason, each with the way out."""
    problems = []
    if len({node.slots for node in cluster.nodes}) > 1:
        problems.append(
            "accelerate divides num_processes evenly over its machines, and the slots differ: "
            f"{_listed(cluster.nodes)}. Set launch_launcher to torchrun, which starts each node with its own number, "
            "or make torchfleet_slots the same"
        )
    if chosen.distributed_type == "MULTI_CPU":
        return problems
    without = [node.name for node in cluster.nodes if not node.gpus]
    if without and (chosen.distributed_type != "DEEPSPEED" or len(without) < len(cluster.nodes)):
        problems.append(
            f"no GPU is known on {', '.join(without)} (torchfleet_gpus, from gpu_facts): accelerate's "
            f"{chosen.distributed_type} would train there as a world of 1 in each process and exit 0. "
            "Set distributed_type to MULTI_CPU, or leave these nodes out"
        )
    problems += [
        f"{node.name}: {node.slots} slots on {len(node.gpus)} GPUs; two ranks cannot share one under NCCL: "
        f"set torchfleet_slots to {len(node.gpus)} or less"
        for node in cluster.nodes
        if node.gpus and node.slots > len(node.gpus)
    ]
    return problems


def _listed(nodes: Sequence[Node]) -> str:
    return ", ".join(f"{node.name} has {node.slots}" for node in nodes)


# Sections of the file


def _dynamo(chosen: AccelerateOptions) -> Dict[str, Any]:
    if chosen.dynamo_backend in (None, "no"):
        return {}
    return {
        "dynamo_backend": str(chosen.dynamo_backend).upper(),
        "dynamo_mode": chosen.dynamo_mode or "default",
        "dynamo_use_fullgraph": bool(chosen.dynamo_use_fullgraph),
        "dynamo_use_dynamic": bool(chosen.dynamo_use_dynamic),
    }


def _deepspeed(chosen: AccelerateOptions) -> Dict[str, Any]:
    section: Dict[str, Any] = {
        "deepspeed_multinode_launcher": chosen.deepspeed_launcher or "standard",
        "deepspeed_hostfile": chosen.deepspeed_hostfile,
        "deepspeed_config_file": chosen.deepspeed_config_file,
        # Left out, accelerate takes it for true, and then wants transformers installed.
        "zero3_init_flag": bool(chosen.zero3_init),
    }
    if chosen.deepspeed_config_file is None:
        section["zero_stage"] = 2 if chosen.zero_stage is None else chosen.zero_stage
        section["zero3_save_16bit_model"] = chosen.zero3_save_16bit_model
        section["offload_optimizer_device"] = chosen.offload_optimizer or "none"
        section["offload_param_device"] = chosen.offload_param or "none"
        section["gradient_accumulation_steps"] = chosen.gradient_accumulation_steps or 1
        section["gradient_clipping"] = chosen.gradient_clipping
    return section


def _fsdp(chosen: AccelerateOptions) -> Dict[str, Any]:
    version = chosen.fsdp_version or 2
    strategy = chosen.fsdp_sharding_strategy or "FULL_SHARD"
    section: Dict[str, Any] = {
        "fsdp_version": version,
        "fsdp_auto_wrap_policy": chosen.fsdp_auto_wrap_policy or "TRANSFORMER_BASED_WRAP",
        "fsdp_transformer_layer_cls_to_wrap": ",".join(chosen.fsdp_transformer_layer_cls) or None,
        "fsdp_min_num_params": chosen.fsdp_min_num_params,
        "fsdp_offload_params": bool(chosen.fsdp_offload_params),
        "fsdp_state_dict_type": chosen.fsdp_state_dict_type or "SHARDED_STATE_DICT",
        "fsdp_cpu_ram_efficient_loading": chosen.fsdp_cpu_ram_efficient_loading is not False,
        "fsdp_activation_checkpointing": bool(chosen.fsdp_activation_checkpointing),
    }
    if version == 1:
        section.update(fsdp_sharding_strategy=strategy, fsdp_sync_module_states=True, fsdp_use_orig_params=True)
    else:
        section["fsdp_reshard_after_forward"] = strategy == "FULL_SHARD"
    return section


# Checks


def _type_problems(chosen: AccelerateOptions) -> List[str]:
    problems = []
    for item in fields(chosen):
        value = getattr(chosen, item.name)
        wanted = _wanted(str(item.type), value)
        if wanted is not None:
            problems.append(f"{item.name} is {value!r}, wanted {wanted}")
        elif value is not None and item.name in CHOICES and value not in CHOICES[item.name]:
            problems.append(f"{item.name} is {value!r}, wanted one of {', '.join(CHOICES[item.name])}")
    return problems


def _wanted(kind: str, value: Any) -> Optional[str]:
    """What a field of that type holds, where the value is something else."""
    if value is None and kind.startswith("Optional"):
        return None
    if "bool" in kind:
        return None if isinstance(value, bool) else "true or false"
    if "int" in kind:
        return None if isinstance(value, int) and not isinstance(value, bool) else "a whole number"
    if "float" in kind:
        return None if isinstance(value, (int, float)) and not isinstance(value, bool) else "a number"
    if "Tuple" in kind:
        ok = isinstance(value, tuple) and all(isinstance(part, str) for part in value)
        return None if ok else "a list of names"
    return None if isinstance(value, str) else "text"


def _general_problems(chosen: AccelerateOptions) -> List[str]:
    problems = []
    if chosen.mixed_precision == "fp8" and chosen.fp8_backend is None:
        problems.append(f"mixed_precision fp8 needs fp8_backend: one of {', '.join(CHOICES['fp8_backend'])}")
    if chosen.mixed_precision != "fp8" and chosen.fp8_backend is not None:
        problems.append("fp8_backend is given but mixed_precision is not fp8: set it, or remove fp8_backend")
    if chosen.distributed_type == "MULTI_CPU" and chosen.mixed_precision in ("fp16", "fp8"):
        problems.append(f"mixed_precision is {chosen.mixed_precision}, which CPUs do not train in: set no or bf16")
    if chosen.dynamo_backend in (None, "no"):
        problems += [
            f"{name} is given but dynamo_backend is not: set one, inductor say, or remove {name}"
            for name in ("dynamo_mode", "dynamo_use_fullgraph", "dynamo_use_dynamic")
            if getattr(chosen, name) is not None
        ]
    fsdp = tuple(item.name for item in fields(chosen) if item.name.startswith("fsdp_"))
    for kind, owned in (("DEEPSPEED", _DEEPSPEED), ("FSDP", fsdp)):
        if chosen.distributed_type != kind:
            problems += [
                f"{name} works with distributed_type {kind} alone, and that is {chosen.distributed_type}: remove it"
                for name in owned
                if getattr(chosen, name) not in (None, ())
            ]
    return problems


def _deepspeed_problems(chosen: AccelerateOptions) -> List[str]:
    problems = []
    hostfile_needed = chosen.deepspeed_launcher in ("pdsh", "nossh")
    if hostfile_needed and chosen.deepspeed_hostfile is None:
        # DeepSpeed takes a missing hostfile for a local run, and says so in a warning only.
        problems.append(f"deepspeed_launcher {chosen.deepspeed_launcher} needs deepspeed_hostfile, a path on the nodes")
    if not hostfile_needed and chosen.deepspeed_hostfile is not None:
        problems.append("deepspeed_hostfile is read with deepspeed_launcher pdsh or nossh only: set one, or remove it")
    for name in ("deepspeed_hostfile", "deepspeed_config_file"):
        path = getattr(chosen, name)
        if path is not None and (not path.startswith("/") or any(ord(char) < 32 for char in path)):
            problems.append(f"{name} is {path!r}, wanted an absolute path on the nodes")
    if chosen.deepspeed_config_file is not None:
        problems += [
            f"{name} is given beside deepspeed_config_file, and accelerate refuses both: say it in that file"
            for name in ("mixed_precision", *_ZERO)
            if getattr(chosen, name) is not None
        ]
    elif chosen.zero_stage != 3:
        problems += [
            f"{name} belongs to ZeRO stage 3, and zero_stage is {2 if chosen.zero_stage is None else chosen.zero_stage}"
            for name in ("zero3_init", "zero3_save_16bit_model")
            if getattr(chosen, name)
        ]
        if chosen.offload_param == "cpu":
            problems.append("offload_param belongs to ZeRO stage 3: set zero_stage to 3, or offload_param to none")
    if chosen.zero_stage is not None and chosen.zero_stage not in (0, 1, 2, 3):
        problems.append(f"zero_stage is {chosen.zero_stage}, wanted 0, 1, 2 or 3")
    if chosen.gradient_accumulation_steps is not None and chosen.gradient_accumulation_steps < 1:
        problems.append(f"gradient_accumulation_steps is {chosen.gradient_accumulation_steps}, wanted 1 or more")
    if chosen.gradient_clipping is not None and not 0 < chosen.gradient_clipping < float("inf"):
        problems.append(f"gradient_clipping is {chosen.gradient_clipping}, wanted a norm above 0")
    return problems


def _fsdp_problems(chosen: AccelerateOptions) -> List[str]:
    problems = []
    version = chosen.fsdp_version or 2
    if version not in (1, 2):
        return [f"fsdp_version is {version}, wanted 1 or 2"]
    if version == 2 and chosen.fsdp_sharding_strategy not in (None, "FULL_SHARD", "SHARD_GRAD_OP"):
        problems.append(
            f"fsdp_sharding_strategy {chosen.fsdp_sharding_strategy} is FSDP 1's: set fsdp_version to 1, or choose "
            "FULL_SHARD or SHARD_GRAD_OP"
        )
    if version == 2 and chosen.fsdp_state_dict_type == "LOCAL_STATE_DICT":
        problems.append("fsdp_state_dict_type LOCAL_STATE_DICT is FSDP 1's: set fsdp_version to 1, or choose another")
    if chosen.fsdp_transformer_layer_cls and chosen.fsdp_auto_wrap_policy not in (None, "TRANSFORMER_BASED_WRAP"):
        problems.append("fsdp_transformer_layer_cls is read with fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP only")
    if chosen.fsdp_min_num_params is not None and chosen.fsdp_auto_wrap_policy != "SIZE_BASED_WRAP":
        problems.append("fsdp_min_num_params is read with fsdp_auto_wrap_policy SIZE_BASED_WRAP only")
    return problems


# Text in and out


_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def _read(kind: str, value: Any) -> Any:
    """An inventory's spelling of a value: `-e x=3` and the like arrive as text. What does not fit is left as it is."""
    if "Tuple" in kind:
        parts = value.split(",") if isinstance(value, str) else value
        return tuple(parts) if isinstance(parts, (list, tuple)) else value
    if not isinstance(value, str):
        # Plain YAML has no and false for the word that mixed_precision and dynamo_backend want.
        return "no" if value is False and "str" in kind else value
    text = value.strip()
    if "bool" in kind:
        return _BOOLEANS.get(text.lower(), value)
    if "int" in kind or "float" in kind:
        try:
            return int(text) if "int" in kind else float(text)
        except ValueError:
            return value
    return value


def _yaml(config: Mapping[str, Any], indent: str = "") -> str:
    """Mappings of mappings as YAML. Strings take JSON's form, which is YAML's double-quoted one."""
    lines = []
    for key, value in config.items():
        if isinstance(value, dict):
            lines.append(f"{indent}{key}:\n{_yaml(value, indent + '  ')}")
        else:
            lines.append(f"{indent}{key}: {_scalar(value)}\n")
    return "".join(lines)


def _scalar(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    # YAML 1.1 takes 1e-06 for text: a float there has a point.
    return text.replace("e", ".0e") if isinstance(value, float) and "e" in text and "." not in text else text
