#!/usr/bin/python

# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: accelerate_config
short_description: Write the configuration that accelerate launch reads
version_added: 0.1.0
description:
  - Writes the file for C(accelerate launch --config_file) of the node it runs on. Number of machines and processes,
    rank, address and port come from the cluster.
  - Refused are clusters that accelerate cannot start right. It divides the processes evenly, so nodes with unequal
    slots are for the launcher V(torchrun); and on nodes without a GPU it would train one world for each process.
options:
  dest:
    description: Absolute path of the file on the node.
    type: path
    required: true
  distributed_type:
    description:
      - What C(accelerate launch) starts on each node.
      - V(MULTI_CPU) needs C(--multi_gpu) and C(ACCELERATE_USE_CPU=true) with C(accelerate launch) besides, as the
        launch role gives them. Without them each node trains alone.
    type: str
    default: MULTI_GPU
    choices: [MULTI_GPU, MULTI_CPU, DEEPSPEED, FSDP]
  mixed_precision:
    description:
      - Left out, V(no), or what O(deepspeed_config_file) says.
    type: str
    choices: ["no", fp16, bf16, fp8]
  fp8_backend:
    description:
      - >-
        Required with O(mixed_precision=fp8): Transformer Engine, torchao or MS-AMP.
    type: str
    choices: [te, ao, msamp]
  dynamo_backend:
    description:
      - Compiler of C(torch.compile). Left out, nothing is compiled.
    type: str
    choices: ["no", eager, aot_eager, inductor, cudagraphs, onnxrt, tensorrt, tvm]
  dynamo_mode:
    description:
      - Mode of C(torch.compile). Left out, V(default).
    type: str
    choices: [default, reduce-overhead, max-autotune]
  dynamo_use_fullgraph:
    description:
      - Whether the whole model must be one graph.
    type: bool
  dynamo_use_dynamic:
    description:
      - Whether shapes are traced as dynamic ones.
    type: bool
  cpu_affinity:
    description:
      - Whether each rank is bound to the CPUs near its GPU.
    type: bool
    default: false
  debug:
    description:
      - Whether accelerate checks shapes across ranks at every collective. Slow.
    type: bool
    default: false
  deepspeed_launcher:
    description:
      - >-
        How the nodes are started: V(standard) on each node by itself, V(pdsh) from the head alone, V(nossh) on each
        node by C(deepspeed --no_ssh). Left out, V(standard).
    type: str
    choices: [standard, pdsh, nossh]
  deepspeed_hostfile:
    description:
      - Path of the hostfile on the nodes. Required with O(deepspeed_launcher=pdsh) and O(deepspeed_launcher=nossh).
    type: str
  deepspeed_config_file:
    description:
      - Path of a DeepSpeed configuration on the nodes. What it holds cannot be given here as well.
    type: str
  zero_stage:
    description:
      - ZeRO stage, 0 to 3. Left out, 2.
    type: int
  zero3_init:
    description:
      - Whether models are built under C(deepspeed.zero.Init). Stage 3 only; needs C(transformers).
    type: bool
  zero3_save_16bit_model:
    description:
      - Whether the 16-bit weights are gathered when saving. Stage 3 only.
    type: bool
  offload_optimizer:
    description:
      - Where the optimizer's state lives. NVMe is for O(deepspeed_config_file), for C(accelerate launch) does not
        pass its path on.
    type: str
    choices: [none, cpu]
  offload_param:
    description:
      - Where parameters live. Stage 3 only.
    type: str
    choices: [none, cpu]
  gradient_accumulation_steps:
    description:
      - Steps between two updates. Left out, 1.
    type: int
  gradient_clipping:
    description:
      - Norm to which gradients are clipped. Left out, they are not.
    type: float
  fsdp_version:
    description:
      - FSDP 1 or 2. Left out, 2, which needs torch 2.6 or later.
    type: int
  fsdp_sharding_strategy:
    description:
      - What is sharded. FSDP 2 knows V(FULL_SHARD) and V(SHARD_GRAD_OP). Left out, V(FULL_SHARD).
    type: str
    choices: [FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD, HYBRID_SHARD_ZERO2]
  fsdp_auto_wrap_policy:
    description:
      - How the model is cut into units. Left out, V(TRANSFORMER_BASED_WRAP).
    type: str
    choices: [TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP, NO_WRAP]
  fsdp_transformer_layer_cls:
    description:
      - Classes of the model's layers. Left out, those that a Transformers model names itself.
    type: list
    elements: str
  fsdp_min_num_params:
    description:
      - Parameters of a unit under V(SIZE_BASED_WRAP).
    type: int
  fsdp_offload_params:
    description:
      - Whether parameters and gradients live in the CPU's memory.
    type: bool
  fsdp_state_dict_type:
    description:
      - How checkpoints are written. Left out, V(SHARDED_STATE_DICT).
    type: str
    choices: [SHARDED_STATE_DICT, FULL_STATE_DICT, LOCAL_STATE_DICT]
  fsdp_cpu_ram_efficient_loading:
    description:
      - Whether only the first rank loads a Transformers model's weights. Left out, true.
    type: bool
  fsdp_activation_checkpointing:
    description:
      - Whether activations are computed again in the backward pass.
    type: bool
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.backup
  - ansible.builtin.files
attributes:
  action:
    support: full
  async:
    support: none
  bypass_host_loop:
    support: none
  check_mode:
    support: full
  diff_mode:
    support: full
  platform:
    platforms: posix
notes:
  - The nodes are the hosts of the group that O(ignore:torchfleet_group) names (default V(train)), in its order, the one
    that O(ignore:torchfleet_head) names first. What is wrong with them stops the task, every culprit named.
  - Rendered on the controller and written by M(torchfleet.cluster.rendered_file).
author:
  - The torchfleet authors (@torchfleet)
"""

EXAMPLES = r"""
---
- name: Write the configuration of each node for a multi-GPU run
  torchfleet.cluster.accelerate_config:
    dest: /etc/torchfleet/accelerate.yml
    distributed_type: MULTI_GPU
    mixed_precision: bf16
    mode: "0644"

- name: Write one for DeepSpeed, started on the head and carried on by pdsh
  torchfleet.cluster.accelerate_config:
    dest: /etc/torchfleet/accelerate.yml
    distributed_type: DEEPSPEED
    deepspeed_launcher: pdsh
    deepspeed_hostfile: /etc/torchfleet/hostfile
    zero_stage: 3
    gradient_clipping: 1.0
    mode: "0644"

- name: Shard a Transformers model with FSDP
  torchfleet.cluster.accelerate_config:
    dest: /etc/torchfleet/accelerate.yml
    distributed_type: FSDP
    fsdp_transformer_layer_cls:
      - LlamaDecoderLayer
    mode: "0644"
"""

RETURN = r"""
---
dest:
  description: Path of the file.
  returned: success
  type: str
  sample: /etc/torchfleet/accelerate.yml
checksum:
  description: SHA-256 of the file's content, 64 hex digits.
  returned: success
  type: str
  sample: 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae
backup_file:
  description: Path of the copy of what was there before.
  returned: changed and O(backup=true)
  type: str
  sample: /etc/torchfleet/accelerate.yml.2215.2026-01-20@22:09:12~
"""
