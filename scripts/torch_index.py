#!/usr/bin/env python3
# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Print the index that lab nodes take torch from, beside pip's own: the CPU builds'.

Prints nothing where pip is already set up with a folder that holds torch wheels. On a machine with the public index
alone, pip would take torch's CUDA build for a node without a GPU: several gigabytes for nothing.
"""

import re
import subprocess
import sys
from pathlib import Path

CPU_INDEX = "https://download.pytorch.org/whl/cpu"

listed = subprocess.run(
    [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
).stdout
folders = " ".join(re.findall(r"find-links='([^']*)'", listed)).replace("\\n", " ").split()
if not any(list(Path(folder).glob("torch-*.whl")) for folder in folders):
    print(CPU_INDEX)
