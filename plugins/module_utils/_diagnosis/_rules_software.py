# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Rules: libraries, builds, ssh and the launchers."""

from __future__ import annotations

from typing import Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis._rule import (
    ECHO,
    HINT,
    LIKELY,
    STATED,
    SYMPTOM,
    Rule,
    fact,
    sign,
    signs,
)

_LAUNCHERS = r"(?:torchrun|deepspeed|accelerate|colossalai|orted|prted|pdsh|mpirun|mpiexec|horovodrun)"
# bash's `command not found` in other languages.
_NOT_FOUND = (
    "未找到命令|找不到命令|找不到指令|コマンドが見つかりません|명령어?를 찾을 수 없|команда не найдена"
    "|commande introuvable|Kommando nicht gefunden|Befehl nicht gefunden|orden no encontrada"
    "|no se encontró la orden|comando não encontrado"
    "|comando non trovato|nie znaleziono polecenia"
)
_ENV = (
    r"(?:RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT|NODE_RANK|OMPI_COMM_WORLD_\w+|PMI_\w+"
    r"|SLURM_\w+)"
)
# Those of them that a word of a message could not be.
_ENV_KEYS = ("LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "'RANK'")
_TOO_HIGH = r"(?:6553[6-9]|655[4-9]\d|65[6-9]\d\d|6[6-9]\d{3}|[7-9]\d{4}|\d{6,})"

RULES: Tuple[Rule, ...] = (
    # Libraries.
    Rule(
        id="glibc",
        label="glibc_too_old",
        level=STATED,
        confidence=0.95,
        signs=signs(
            sign(
                r"version [`'\"]?(?P<version>(?:GLIBC|GLIBCXX|CXXABI)_[\w.]+)['\"]? not found",
                "glibc_",
                "glibcxx_",
                "cxxabi_",
            ),
            sign(
                r"\.so[.\d]*: version [`'](?P<version>(?:GLIBC|GLIBCXX|CXXABI)_[\w.]+)' ",
                "glibc_",
                "glibcxx_",
                "cxxabi_",
            ),
            r"requires? (?P<version>GLIBC_[\w.]+)",
        ),
        outranks=("missing_shared_lib", "library_conflict"),
        cause="A binary needs {version}, which the node's C or C++ library is too old to have.",
        fix=(
            "Use a build made on a system as old as the node, a newer OS or image, or (for GLIBCXX) conda install -c "
            "conda-forge libstdcxx-ng."
        ),
    ),
    Rule(
        id="wrong_library_loaded",
        label="library_conflict",
        level=STATED,
        confidence=0.88,
        signs=signs(
            r"symbol (?P<symbol>\w+) version \S+ not defined",
            r"cannot allocate memory in static TLS block",
            sign(
                # Torch's own packages and NCCL try optional parts and only tell where one is absent.
                r"^(?!.*(?:UserWarning|Failed to load image|dlv?sym failed|bitsandbytes_cpu))"
                r".*undefined symbol:? ?_?_?(?P<symbol>\w+)",
                "undefined symbol",
            ),
            r"symbol \S+ version \S+ not defined in file",
            r"version [`'\"]lib(?P<symbol>\w+)\.so\S* not found",
            r"CUDNN_STATUS_(?:SUBLIBRARY_)?VERSION_MISMATCH",
            r"cuDNN version (?:incompatibility|mismatch)",
            r"Could not load library libcudnn",
            r"Cannot load symbol cudnn",
            r"Unable to load any of \{libcudnn",
            r"undefined%20symbol:%20(?P<symbol>\w+)",
            r"compiled with different CUDA",
            r"operator torchvision::nms does not exist",
            r"Couldn't load custom C\+\+ ops",
            r"version mismatch! DeepSpeed ops",
            r"is a stub library|cudaErrorStubLibrary|CUDA_ERROR_STUB_LIBRARY",
            r"OMP: Error #15: Initializing",
            r"MKL_THREADING_LAYER=\w+ is incompatible with",
        ),
        outranks=("missing_shared_lib",),
        cause=(
            "A library of another version is found before the one that came with torch (symbol {symbol} is not in it)."
        ),
        fix=(
            "Take CUDA and NCCL directories off LD_LIBRARY_PATH (launch_env, /etc/ld.so.conf.d, .bashrc), uninstall "
            "the second "
            "package (pip list | grep -E 'nvidia-|nccl'), rebuild extensions against this torch. ldd on the file "
            "shows what is taken."
        ),
        probe="loaded_libraries",
    ),
    Rule(
        id="numpy_of_another_age",
        label="library_conflict",
        level=LIKELY,
        confidence=0.7,
        signs=signs(
            r"compiled against A[BP]I version",
            r"numpy\.\w+ size changed",
            r"ImportError: numpy\.\w*core\.multiarray failed",
        ),
        recovers=True,
        cause="A package was built for another NumPy than the one that is installed.",
        fix="Install numpy<2 (or the version that the package names) on all nodes, or newer builds of the package.",
        probe="loaded_libraries",
    ),
    Rule(
        id="numpy_notice",
        label="library_conflict",
        level=HINT,
        confidence=0.4,
        # Torch goes on without NumPy, and so do many programs.
        signs=signs(r"compiled using NumPy 1\.x cannot be run"),
        recovers=True,
        cause="A package was built for NumPy 1, and NumPy 2 is installed.",
        fix="Install numpy<2 on all nodes, or newer builds of the package.",
        probe="loaded_libraries",
    ),
    Rule(
        id="cublas_refuses",
        label="library_conflict",
        level=SYMPTOM,
        confidence=0.45,
        signs=signs(
            r"CUDNN_STATUS_NOT_INITIALIZED",
            r"CUBLAS_STATUS_INVALID_VALUE.* when calling",
            r"CUBLAS_STATUS_NOT_SUPPORTED.* when calling",
            r"unable to find an engine to execute this",
        ),
        cause=(
            "cuBLAS refuses a plain call: often another cuBLAS than torch's own is loaded, else the program's shapes."
        ),
        fix=(
            "Run once with launch_env: {{LD_LIBRARY_PATH: ''}}; if that cures it take the CUDA directories off that "
            "path for good."
        ),
        probe="loaded_libraries",
    ),
    Rule(
        id="library_absent",
        label="missing_shared_lib",
        level=STATED,
        confidence=0.88,
        signs=signs(
            r"Error: Could not find (?P<library>lib(?!nccl-)\w+\.so\S*)",
            sign(
                r"(?-i:\b(?:Import|OS|Runtime)?Error|error while loading shared libraries): (?!.*dynamic library).*?"
                r"(?P<library>lib[\w+.-]+\.so[.\d]*): cannot open shared object file",
                "cannot open shared object file",
            ),
            # Its own, for terminals that break the line behind it.
            sign(
                r"error while loading shared libraries: (?P<library>lib[\w+.-]+\.so[.\d]*): cannot open",
                "error while loading shared lib",
            ),
            # DeepSpeed looks for these two by linking against them, and goes on without.
            r"cannot find -l(?!aio\b|cufile\b)(?P<library>\w+)",
            r"Could not find (?P<library>lib\S+\.so\S*) ",
            r"libcuda\.so cannot found",
            r"ailed to (?:dl)?open (?P<library>lib(?:cu|nv(?!idia-ml))[\w-]+\.so\S*)",
            r"(?P<library>lib\S+\.so\S*) not found in the system path",
            # bitsandbytes goes on without its CUDA part, until an optimizer asks for it.
            r"Configured CUDA binary not found at|libbitsandbytes_cpu\.so: undefined symbol",
            r"name 'str2optimizer\w+' is not defined|has no attribute 'c(?:get_col_row_stats|adam\w+|dequantize\w+)'",
            r"CUDA Setup failed despite \w+ being available",
            r"MKL FATAL ERROR: Cannot load (?P<library>lib\w+\.so)",
            r"ibrary (?P<library>lib\S+\.so\S*) is not found or cannot be loaded",
            r"ImportError: (?P<library>lib[\w+-]+\.so[.\d]*)$",
            r"DLL load failed while importing",
            r"PTX JIT compiler library not found",
        ),
        cause="The library {library} is not on this node, or not where the loader looks.",
        fix=(
            "Install the toolkit or package that holds it (cuda role), or a torch build that brings it; for "
            "-l{library} at link time a link in the toolkit's lib64. ldconfig -p | grep {library}"
        ),
        probe="library_present",
        probe_parameters={"library": "{library}"},
    ),
    Rule(
        id="cuda_library_absent",
        label="missing_shared_lib",
        level=LIKELY,
        confidence=0.7,
        # The loader's words without an exception. TensorFlow and torchvision go on without.
        signs=signs(
            sign(
                r"^(?!.*(?:dlerror|dynamic library|Warning|Failed to load image)).*?"
                r"(?P<library>lib(?:cu(?:dart|blas|sparse|rand|solver|dnn|fft|pti)|nvrtc|nvJitLink|nvToolsExt|bitsandbytes)"
                r"[\w.-]*): cannot open shared object file",
                "cannot open shared object file",
            )
        ),
        recovers=True,
        cause="The library {library} is not on this node, or not where the loader looks.",
        fix=(
            "Install the toolkit or package that holds it (cuda role), or a build for this CUDA. "
            "ldconfig -p | grep {library}"
        ),
        probe="library_present",
        probe_parameters={"library": "{library}"},
    ),
    Rule(
        id="library_damaged",
        label="missing_shared_lib",
        level=STATED,
        confidence=0.8,
        signs=signs(
            r"(?P<library>[\w+.-]+\.so[.\d]*): (?:cannot read file data|file too short|invalid ELF header"
            r"|wrong ELF class|ELF load command past end|failed to map segment)"
        ),
        cause="The library {library} is there but damaged: cut off, of another machine, or unreadable where it lies.",
        fix=(
            "Install its package anew (a copy or a download that broke off leaves such files), and look at the file "
            "system: df -h, dmesg."
        ),
        probe="library_present",
        probe_parameters={"library": "{library}"},
    ),
    # Builds of extensions.
    Rule(
        id="no_toolkit",
        label="ds_cuda_home_missing",
        level=STATED,
        confidence=0.88,
        signs=signs(
            r"CUDA_HOME (?:does not exist|environment variable is not set|is not set|is not found|is None)",
            r"nvcc (?:compiler )?(?:is )?not found",
            r"CUDA was not found on the system",
            r"argument cuda_dir is None",
            # Where it is None, all that tells is the line of the traceback.
            r"cuda_(?:home|dir) \+ \"/bin/nvcc\"",
            r"MissingCUDAException",
            r"No such file or directory: '[^']*nvcc'",
            r"nvcc: (?:command )?not found",
            r"fatal error: (?:cuda_runtime|cuda|cusparse|cublas_v2|curand\w*|cusolver\w*)\.h: No such file",
            r"nvcc, unable to compile",
            r"nvcc was not found",
            r"CUDA_TOOLKIT_ROOT_DIR not found",
            r"Failed to find nvcc",
            r"CMAKE_CUDA_COMPILER could be found",
            r"Could not find CUDA \(missing",
            r"command '\S*nvcc' failed: No such file",
            r"fatal error: (?!cuda_(?:bf16|fp\d+)\.h)cu\w+\.h: No such file",
            r"nvcc: (?:No such file|Permission denied)",
            # A CUDA_HOME that holds a list of directories, as a PATH does.
            sign(r"(?:^|\s):?(?:/[^\s:]+:)+/[^\s:]+/bin/nvcc -", "/bin/nvcc -"),
            r"(?:annot|ould not|nable to) find (?:the )?(?:nvcc\b|CUDA toolkit)",
            r"CUDA toolkit (?:was )?not found",
        ),
        recovers=True,
        outranks=("ds_cuda_torch_mismatch",),
        cause="DeepSpeed (or torch) wants to build an extension and finds no CUDA toolkit.",
        fix=(
            "Install the toolkit of torch's CUDA version (cuda role) and set launch_env: {{CUDA_HOME: "
            "/usr/local/cuda}}; or build the ops beforehand on a node that has it."
        ),
        probe="cuda_home",
    ),
    Rule(
        id="toolkit_mismatch",
        label="ds_cuda_torch_mismatch",
        level=STATED,
        confidence=0.88,
        signs=signs(
            r"Installed CUDA version (?P<toolkit>[\d.]+) does not match the version torch was compiled with "
            r"(?P<torch>[\d.]+)(?!.*(?:accepting|Allowing))",
            r"CUDA version \(?(?P<toolkit>[\d.]+)\)? mismatches the version that was used to compile PyTorch "
            r"\(?(?P<torch>[\d.]+)",
            r"detected CUDA version \(?(?P<toolkit>[\d.]+)\)? mismatches the version",
            r"CUDAMismatchException",
            r"Unsupported gpu architecture",
            r"version of Cuda that does not match",
            r"is not defined for option '(?:gpu-arch|std)",
            # A toolkit of before this file or option.
            r"fatal error: cuda_(?:bf16|fp\d+)\.h: No such file|nvcc fatal\s*: Unknown option",
            r"FlashAttention is only supported on CUDA",
        ),
        cause="The CUDA toolkit ({toolkit}) and torch's CUDA ({torch}) do not fit, so extensions cannot be built.",
        fix=(
            "Install the toolkit of torch's CUDA version and point launch_env: {{CUDA_HOME: ...}} at it, or a torch "
            "build of the toolkit's; DS_SKIP_CUDA_CHECK=1 only within one major version."
        ),
        probe="cuda_home",
    ),
    Rule(
        id="compiler_unsupported",
        label="ds_gcc_unsupported",
        level=STATED,
        confidence=0.9,
        signs=signs(
            r"too old version of GCC",
            r"unsupported GNU version",
            r"(?:less than the minimum|greater than the maximum) required version by CUDA",
            r"may be ABI-incompatible with PyTorch",
            r"gcc versions later than",
            r"C\+\+1[47] or later compatible compiler is required",
            r"unrecognized command line option .-std=c\+\+",
            r"parameter packs not expanded with",
            r"(?:host compiler|clang version|gcc version).*(?:is not supported|unsupported)",
            r"You need C\+\+\d\d to compile",
            r"unrecognized command.line option .{1,3}std=(?:c|gnu)\+\+",
            r"C\+\+ versions less than C\+\+\d\d are not",
            r"target specific option mismatch",
            r"nvcc fatal\s*: .*\bcompiler\b",
            # nvcc cannot read the headers of that compiler.
            r"/usr/(?:lib/gcc|include/c\+\+)/[^\s:]{1,120}:[\d:]{1,12} error: ",
            r"/usr/lib/gcc/[^\s(]{1,120}\(\d+\): error: ",
            r"identifier \"__builtin_\w+\" is undefined",
            r"attribute \"__malloc__\" does not take",
            r"nvcc error\s*: '(?:cudafe\+\+|cicc)' died",
            r"unsupported Microsoft Visual Studio version",
        ),
        cause="The host compiler is too old or too new for torch's headers or for nvcc.",
        fix="Install a gcc in the range of that CUDA (compiler role) and set launch_env: {{CC: ..., CXX: ...}}.",
        probe="compiler",
    ),
    Rule(
        id="build_tool_absent",
        label="build_dep_missing",
        level=STATED,
        confidence=0.9,
        signs=signs(
            r"Python\.h: No such file",
            r"Ninja is required to load",
            r"Failed to find C compiler",
            r"ninja: (?:command )?not found",
            r"command '\S*(?:ninja|gcc|g\+\+|(?<!nv)cc)' failed: No such file",
            r"No such file or directory: '(?:ninja|gcc|g\+\+|c\+\+|cc|x86_64-linux-gnu-g\w+|cmake|which)'",
            r"command '\S*(?:gcc|g\+\+|(?<!nv)cc)' failed: No such file",
            r"which: no (?:g\+\+|gcc|ninja|c\+\+)",
            sign(r"\b(?:gcc|g\+\+|c\+\+|cc1plus|cmake): (?:command )?not found", ": command not found", ": not found"),
            r"error trying to exec 'cc1plus'",
            r"ninja not being installed|ninja is required to build",
            r"Compiler: \S+ is not found|Unable to locate CUTLASS",
            r"cannot execute .cc1plus",
            r"Unable to (?:JIT load the|pre-compile) async_io",
            r"Unable to pre-compile ops without torch",
            r"'which', '[\w+-]+'\]' returned non-zero",
            r"CMake [\d.]+ or higher is required",
            r"CMake must be installed",
            r"No module named '(?:ninja|cmake|pybind11|packaging|wheel)'",
            r"No working C\+\+ compiler found",
            r"no acceptable C compiler|C compiler cannot create executables|can't find Rust compiler",
            r"CMAKE_C(?:XX)?_COMPILER (?:not set|could be found)",
            r"find a build program corresponding",
            r"Visual C\+\+ [\d.]+ or greater is required",
            r"unable to execute '\S*(?:gcc|g\+\+|cc|c\+\+)'",
        ),
        outranks=("ds_cuda_torch_mismatch",),
        cause="What a build at run time needs is absent: ninja, the compiler or Python's headers.",
        fix=(
            "Install them on every node (compiler role: build-essential, python3-dev, ninja-build) and keep the "
            "environment's bin on the job's PATH: launch_env."
        ),
        probe="build_tools",
    ),
    fact("wheel_built", r"subprocess-exited-with-error", r"requirements to build wheel", r"setup\.py egg_info"),
    Rule(
        id="build_without_torch",
        label="build_dep_missing",
        level=LIKELY,
        confidence=0.8,
        signs=signs(r"No module named '?torch'?$"),
        needs=("wheel_built",),
        outranks=("launcher_remote_env", "user_code"),
        cause="pip builds a package apart from the environment, and its build wants torch.",
        fix="Install torch first, then the package with pip install --no-build-isolation.",
        probe="build_tools",
    ),
    Rule(
        id="header_absent",
        label="build_dep_missing",
        level=LIKELY,
        confidence=0.7,
        signs=signs(r"fatal error: (?P<header>[\w./+-]+\.(?:h|hpp|hh|cuh)): No such file or directory"),
        cause="A build wants the header {header}, and the package that holds it is not installed.",
        fix="Install the development package that brings {header} on every node, or build the extension elsewhere.",
        probe="build_tools",
    ),
    Rule(
        id="extension_not_built",
        label="insufficient_log",
        level=LIKELY,
        confidence=0.55,
        signs=signs(r"torch_extensions/\S+\.so: cannot open shared object file"),
        unless=("header_absent",),
        outranks=("user_code",),
        cause="An extension is loaded that was never built: its build failed before, or is another process's still.",
        fix=(
            "Look above, or in the log of local rank 0, for the first 'error:' of the build; empty the folder under "
            "~/.cache/torch_extensions and run once with one process (TORCH_EXTENSIONS_DIR per node if it is shared)."
        ),
    ),
    # ssh and pdsh.
    Rule(
        id="ssh_login",
        label="ssh_auth",
        level=STATED,
        confidence=0.9,
        signs=signs(
            r"Permission denied \((?:publickey|password|keyboard|gssapi|hostbased)|\S@\S+: Permission denied \(",
            r"Bad owner or permissions on \S*ssh|Bad configuration option: ",
            r"BadHostKeyException|Incompatible ssh (?:peer|server)",
            # What paramiko says of keys of another kind than it takes them for.
            r"encountered \w+ key, expected|q must be exactly 160|exception: .*private key file",
            r"ssh: unable to authenticate",
            r"Permission denied, please try again",
            r"Host key verification failed",
            r"REMOTE HOST IDENTIFICATION HAS CHANGED",
            r"not a valid (?:RSA|DSA|EC|OPENSSH|\w+) private key",
            r"Too many authentication failures",
            r"AuthenticationException",
            r"PasswordRequiredException",
            r"BadAuthenticationType|No authentication methods available|(?:xception: |^)Authentication failed[.:]",
            r"Server '\S+' not found in known_hosts",
            r"Error reading SSH protocol banner",
            r"no matching (?:host key type|key exchange method|cipher|MAC) found",
            r"Command 'ssh .*(?:hostname|true|date|echo).*' returned non-zero exit status 255",
            r"not reachable via ssh",
            r"ssh not successful for host|could not connect to some hosts via ssh",
            r"ssh_askpass",
            r"sudo: a password is required",
            r"Load key .*(?:bad permissions|error in libcrypto|invalid format)",
            r"Permissions \d+ for .* are too open",
            r"no mutual signature",
            r"SSHException: No existing session",
            r"Host Key checking is enabled and sshpass",
            r"data could not be sent to (?:the )?remote host",
            r"Missing sudo password",
            r"authenticity of host .* can't be established",
            r"account (?:is currently not available|has expired)",
            r"Access denied by pam_slurm",
            r"Password change required",
            r"a terminal is required to read the password",
            r"sign_and_send_pubkey: ",
        ),
        cause="The launcher cannot log in to a node by ssh without a password.",
        fix=(
            "Run the ssh_trust role on all nodes (the head must be able to log in to itself as well), and test: ssh -o "
            "BatchMode=yes <node> true. colossalai's paramiko reads the key named in ~/.ssh/config."
        ),
        probe="ssh_pairs",
    ),
    Rule(
        id="ssh_refused",
        label="ssh_auth",
        level=SYMPTOM,
        confidence=0.5,
        signs=signs(
            r"connect to host (?P<host>\S+) port (?P<port>\d+): Connection refused",
            r"Unable to connect to port (?P<port>\d+) on (?P<host>\S+)",
            r"ssh exited with exit code 255",
            r"kex_exchange_identification: ",
            r"^Connection (?:closed|reset) by \S+ port \d+",
            r"ssh_exchange_identification: ",
            r"Connection timed out during banner",
            r"paramiko\.ssh_exception\.\w+: ",
        ),
        cause="ssh to {host} fails: no sshd on that port, or no login without a password.",
        fix="Check ansible_port of {host} and that sshd runs; then ssh -o BatchMode=yes {host} true from the head.",
        probe="ssh_pairs",
    ),
    Rule(
        id="pdsh_uses_rsh",
        label="pdsh_rcmd_rsh",
        level=STATED,
        confidence=0.9,
        signs=signs(
            r"rcmd: socket: Permission denied",
            r"rcmd modules: .*\(default: rsh\)",
            r"(?:pdsh@|pdcp@)\S+: \S+: (?:connect|rcmd): ",
            r"rcmd: \S+: (?:Connection refused|short read|Unknown host)",
            r"No (?:such )?rcmd module",
            r"protocol failure in circuit setup",
        ),
        outranks=("ssh_auth", "node_network_down"),
        cause="pdsh uses rsh, its default, where only ssh is served.",
        fix="launch_env: {{PDSH_RCMD_TYPE: ssh}} (or pdsh -R ssh).",
    ),
    # What is there in the remote shell.
    Rule(
        id="command_absent",
        label="launcher_remote_env",
        level=LIKELY,
        confidence=0.85,
        signs=signs(
            r"No such file or directory: '(?P<command>" + _LAUNCHERS + r")'$",
            sign(
                r"(?:^|[\s:])(?P<command>(?:/?[\w.+~-]+/)*(?:" + _LAUNCHERS + r"|python[\d.]*|conda|ray|srun))['\"]?: "
                r"(?:command not found|not found|No such file or directory)",
                ": command not found",
                ": not found",
                ": no such file or directory",
            ),
            sign(
                r"[\s:](?P<command>"
                + _LAUNCHERS
                + r"|python[\d.]*|conda|ray|srun)(?: ?: |\uff1a)(?:"
                + _NOT_FOUND
                + ")",
                *("torchrun", "deepspeed", "accelerate", "colossalai", "orted", "prted", "pdsh", "mpirun", "mpiexec"),
                *("horovodrun", "python", "conda", "srun"),
            ),
            r"cd: (?P<command>\S+): No such file or directory",
            r"cd: can't cd to (?P<command>\S+)|unable to change wdir to (?P<wdir>\S+)",
            r"exec: \W?(?!nvidia-smi)(?P<command>[\w./-]+)\W{1,3}(?:executable file )?not found",
            r"env: \W?(?P<command>python[\d.]*)\W?: No such file",
            # A host before the shell: a launcher opened it there.
            r"^[\w.-]+: (?:ba|da|k|z)?sh: (?:line \d+: )?(?P<command>[\w./+-]+): (?:command )?not found",
            r"launcher '(?P<command>\w+)' not installed",
            r"(?P<command>mpirun or mpiexec) were not found",
            r"execve\(\): (?P<command>\S+): No such file or directory",
            r"FileNotFoundError: .*No such file or directory: '(?P<command>" + _LAUNCHERS + r")'",
            # A host before the interpreter: it is pdsh or its like that prefixes the lines.
            r"(?:^|[\s\]:|>])[\w.-]+: \S*python[\d.]*: can't open file '(?P<command>[^']+)': \[Errno 2\]",
            r"No module named '?(?P<command>(?:torch|deepspeed|accelerate|colossalai)(?:\.(?:distributed|launcher"
            r"|commands|cli)[\w.]*)?)'?$",
            r"Failed to find .*executable.*(?P<command>orted|prted)",
            r"command not found: (?P<command>python[\d.]*|torchrun|deepspeed|accelerate|colossalai|mpirun|"
            r"srun|conda)",
            r"execvp (?P<command>\S+) failed",
            r"Unknown command:? (?P<command>python[\d.]*|torchrun|deepspeed|accelerate|colossalai|mpirun)",
            r"Could not find conda environment|Not a conda environment",
            r"finding module specification for '(?P<command>(?:torch|deepspeed|accelerate|colossalai|horovod)\S*)'",
            r"not been properly configured to use 'conda (?P<command>activate)'",
        ),
        cause=(
            "{command} is not there in the shell that the launcher opens on a node: other PATH, other path, or not "
            "installed there."
        ),
        fix=(
            "Use the same paths on every node and an absolute interpreter (torchfleet_python; launch.yml starts by "
            "absolute path), copy the code with playbooks/sync.yml; non-login shells do not read .bashrc."
        ),
        probe="path_exists",
        probe_parameters={"path": "{command}"},
    ),
    fact("file_not_found", r"can't open file", r"FileNotFoundError", r"execve\(\): ", r"command not found"),
    Rule(
        # Slurm goes on in /tmp, and a step that needs nothing of the directory is well there.
        id="directory_absent",
        label="launcher_remote_env",
        level=LIKELY,
        confidence=0.86,
        signs=signs(r"couldn't chdir to `?(?P<directory>[^'`]+)"),
        needs=("file_not_found",),
        outranks=("launcher_args_mismatch", "user_code"),
        cause=(
            "{directory}, where the job was submitted, is not there on a node, so it started in /tmp without its files."
        ),
        fix="Keep the code at one path on all nodes: a shared file system, or playbooks/sync.yml before the start.",
        probe="path_exists",
        probe_parameters={"path": "{directory}"},
    ),
    Rule(
        id="exit_127",
        label="launcher_remote_env",
        level=SYMPTOM,
        confidence=0.6,
        signs=signs(
            r"(?:ssh exited|Exited) with exit code 12[67]\b",
            r"exited with (?:status|code) 12[67]\b|^Exit code: +12[67]\b",
            r"execve\(\): (?:\S+: Permission denied|bad interpreter)|Slurmd could not execve",
            r"cannot execute(?: binary file)?: (?:Exec format|required file not)",
            r"sh: (?:line \d+: )?\S+(?<!rc)(?<!profile): (?:Permission denied$|bad interpreter)",
            # A host before the shell, as above; what start-up files look for in vain is no matter.
            r"^[\w.-]+: (?:ba|da|k|z)?sh: (?:line \d+: )?(?!/etc/|\S*/\.)\S+: No such file or directory$",
        ),
        recovers=True,
        cause="A shell on a node found no such command (exit code 127) or may not or cannot run it (126).",
        fix=(
            "Use the same paths on every node and an absolute interpreter (torchfleet_python); non-login shells do "
            "not read .bashrc."
        ),
    ),
    Rule(
        id="remote_shell_fails",
        label="launcher_remote_env",
        level=LIKELY,
        confidence=0.7,
        signs=signs(
            r"\w+: readonly variable",
            r"not a valid identifier",
            r"stdin: is not a tty",
            r"(?:\.bashrc|/etc/profile\S*): line \d+: ",
        ),
        needs=("launcher_failed_on_host|ranks_failed",),
        cause="The start-up files of the remote shell end with an error, and so does what the launcher runs in it.",
        fix=(
            "Repair that line in /etc/profile, /etc/profile.d or .bashrc of the node (nothing may fail or print in a "
            "non-interactive shell), or start with launch.yml, which uses no shell."
        ),
    ),
    Rule(
        id="pdsh_modules",
        label="launcher_remote_env",
        level=LIKELY,
        confidence=0.6,
        signs=signs(r"pdsh\S*: module path \S+ insecure|skipping insecure module|load any pdsh modules"),
        cause="pdsh refuses its own modules: they or a directory above them belong to somebody else or can be written.",
        fix="chown root and chmod go-w the path that it names, or install pdsh anew; launch.yml needs no pdsh.",
    ),
    Rule(
        id="environment_not_loaded",
        label="launcher_remote_env",
        level=HINT,
        confidence=0.4,
        signs=signs(
            r"Lmod has detected the following error",
            r"Unable to locate a modulefile for",
            r"(?P<command>\S+/activate): No such file",
            r"sh: (?:line \d+: )?(?P<command>module|ml|conda): command not found",
        ),
        recovers=True,
        cause="A module or environment that the job's script loads is not there on this node.",
        fix="Load what is there on every node (module avail), or set torchfleet_python to an absolute interpreter.",
    ),
    Rule(
        id="mpi_helper_libraries",
        label="launcher_remote_env",
        level=STATED,
        confidence=0.8,
        signs=signs(r"(?:orted|prted|hydra_\w+): error while loading shared libraries: (?P<library>[\w.+-]+)"),
        outranks=("missing_shared_lib",),
        cause="MPI's helper starts in a non-login shell, where {library} is not on the loader's path.",
        fix="Call mpirun by its full path (or --prefix), or list its lib directory in /etc/ld.so.conf.d on all nodes.",
    ),
    Rule(
        id="ray_versions_differ",
        label="launcher_remote_env",
        level=SYMPTOM,
        confidence=0.6,
        signs=signs(r"Version mismatch: The cluster was started with"),
        cause="This node's Ray or Python is of another version than the head's.",
        fix="Install the same environment on all nodes (pytorch role), and start Ray with that one's interpreter.",
    ),
    Rule(
        id="slurm_not_set_up",
        label="launcher_remote_env",
        level=SYMPTOM,
        confidence=0.6,
        signs=signs(r"unable to status file \S*slurm\.conf", r"Could not establish a configuration source"),
        cause="Slurm's commands find no configuration here: this machine is no node or log-in host of its cluster.",
        fix="Start from a host of the Slurm cluster, set SLURM_CONF, or start with launch.yml, which needs no Slurm.",
    ),
    Rule(
        id="mpi_daemon",
        label="launcher_remote_env",
        level=SYMPTOM,
        confidence=0.5,
        signs=signs(
            r"TE detected a mismatch in versions",
            r"unable to reliably start one or more daemons",
            r"unable to (?:launch|start) the specified application",
            r"unable to find the specified executable",
            r"HYDU_create_process.*execvp error",
            r"could not find (?:the )?executable",
            r"underlying prterun command",
            r"lsb_launch\) failed to start",
            r"unable to run (?:bstrap_)?proxy on",
            r"daemon .* (?:failed to start|died unexpectedly|terminated unexpectedly)",
            r"unexpectedly failed after launch and before",
            r"No available launching agents",
            r"exit status \(\d+\) from launching",
            r"plm_\w+_agent.* was set to a path",
            r"usable .srun. command in its path",
            r"via the .execve. system call",
            r"execvp error on file",
            r"does not know how to route a message",
        ),
        cause="MPI could not start its helper on a node: not installed or not on the path there, or no ssh login.",
        fix=(
            "Install the same Open MPI at the same path on all nodes and call mpirun by its full path (or --prefix); "
            "test: ssh -o BatchMode=yes <node> orted --version."
        ),
    ),
    # Arguments.
    Rule(
        id="launch_variable_missing",
        label="launcher_args_mismatch",
        level=LIKELY,
        confidence=0.85,
        signs=signs(
            sign(r"KeyError: ['\"](?P<variable>" + _ENV + r")['\"]", "keyerror:"),
            r"environment variable (?P<variable>\w+) expected, but not set",
            r"Error: .{0,40}environment variable (?P<variable>(?:LOCAL_)?RANK|WORLD_SIZE|MASTER_\w+) is not set",
            r"(?P<variable>LOCAL_RANK) is not in the environment",
            r"rendezvous: (?P<variable>rank|world_?size) parameter missing",
            sign(r"Could not find ['\"](?P<variable>" + _ENV + r")['\"]", "could not find"),
            r"\b(?P<variable>[A-Z_]+) is not in the environment",
            sign(
                r"(?:Error|Exception): .{0,80}\b(?P<variable>(?-i:" + _ENV + r"))\b.{0,30}\bnot (?:set|found|defined)",
                *(key for key in _ENV_KEYS if key != "'RANK'"),
                "RANK env",
            ),
            # A shell's own words.
            sign(
                r"\b(?P<variable>(?-i:"
                + _ENV
                + r")): (?:(?P=variable) is |unbound variable|parameter (?:null or )?not set)",
                *(key for key in _ENV_KEYS if key != "'RANK'"),
                "RANK: ",
            ),
            sign(r"^\W*['\"](?P<variable>" + _ENV + r")['\"]\s*$", *_ENV_KEYS),
            # Where the traceback is cut off.
            r"raise _env_error\(['\"](?P<variable>\w+)",
        ),
        cause="{variable} is not set: the program was not started by a launcher, or by one that does not set it.",
        fix=(
            "Start it with launch.yml (or torchrun), not with plain python; under mpirun map OMPI_COMM_WORLD_* to "
            "RANK, WORLD_SIZE and LOCAL_RANK first."
        ),
    ),
    Rule(
        id="port_number",
        label="launcher_args_mismatch",
        level=STATED,
        confidence=0.9,
        signs=signs(
            r"main_process_port[\"']?[ =:]+(?P<port>" + _TOO_HIGH + r")\b",
            r"master_port[\"']?[ =:]+(?P<port>" + _TOO_HIGH + r")\b",
            r"MASTER_PORT[ =:]+(?P<port>" + _TOO_HIGH + r")\b",
            r"--rdzv(?:-endpoint|_endpoint)[ =]\S+:(?P<port>" + _TOO_HIGH + r")\b",
            r"port must be 0-65535",
            r"port (?:number )?out of range",
        ),
        cause="The port {port} is not one: ports end at 65535.",
        fix="torchfleet_master_port: a free port between 1024 and 65535.",
    ),
    Rule(
        id="launcher_contradiction",
        label="launcher_args_mismatch",
        level=LIKELY,
        confidence=0.8,
        signs=signs(
            r"need to be configured to run distributed",
            r"host:port expected",
            r"initialize with rank \d+ but world",
            r"not enough (?:slots available|node entries)",
            r"All nodes which are allocated for this job are already filled",
            r"(?:requested|binding) more processes than (?:the ppr|cpus)",
            r"invalid value was given for (?:btl|oob)_tcp_if",
            r"pair of MPI processes are unable to reach|one MPI process is unreachable",
            r"mutually-exclusive MCA variables",
            r"All nodes must have the same number of|hostfile is not formatted",
            r"hostfile (?:contains|is empty|is incorrectly|\S+ (?:contains|is empty))",
            r"No slot '?\d+'? speci\w+ on host",
            r"host(?:name)? '?\S+'? not found in hostfile",
            r"unable to parse hostfile",
            r"Invalid rank -?\d+, rank should be",
            r"(?:srun|sbatch|salloc): error: .*(?:Invalid generic resource|configuration is not available"
            r"|More processors requested|nvalid (?:partition|account|qos|node name|job) )",
            # The head's address is looked up with hostname -I, and there is none.
            r"--master_addr=\s+--master_port",
            r"Using IP address of +for node",
            r"Invalid rank requested ?: \d+/\d+",
            sign(
                r"rank \d+ .{0,20}(?:>=|must be (?:less|smaller) than|out of range).{0,20}world.?size",
                "world size",
                "world_size",
            ),
            r"(?:node_rank|node rank).{0,40}(?:must be|out of range|invalid|>=)",
            r"(?:num_processes|num_machines|machine_rank|main_process_ip).{0,60}(?:must|need|required|should|cannot)",
            r"manually pass in [`'\"]?--?\w*(?:main_process|num_|machine_rank)",
            r"(?:must|need to) (?:specify|pass|provide|set) .{0,20}(?:main_process_ip|main_process_port|machine_rank"
            r"|num_processes|rdzv_endpoint)",
            r"Unsupported nproc_per_node",
            r"(?:torchrun|run\.py|launch\.py|accelerate(?: <command>)?|deepspeed|runner\.py|horovodrun): error: ",
            r"accelerate (?:<command> )?(?:\[<args>\] ?)?(?:launch)?: error: ",
            r"requires? rdzv_endpoint|rendezvous endpoint .*must",
            r"include(?:_str)? and exclude(?:_str)? are mutually exclusive",
            r"MPI rank \d+ does not match torch rank",
            r"node_rank is not set correctly",
            r"backend does not support (?:limiting num nodes|worker include|remapping)",
            r"backend (?:cannot select specific device|needs the same slot)",
            r"must equal world.?size",
            r"world.?size is \d+ but have \d+ available devices",
            r"Try (?:to )?(?:add|specify|launching with) --(?:master|node)[-_]",
            r"rendezvous (?:backend '[^']*' is not registered|configuration (?:option|string))",
            r"number of (?:rendezvous )?nodes \(\d+\) must be",
            r"(?:is required when|not supported in) elastic training",
            r"rank number (?:doesn't match|is not in current env)",
            r"MPI environment variables are not set",
            r"server_port must be specified",
            r"(?:hostfile and hosts|--include and --exclude) are mutually exclusive",
            r"--nproc_per_node did not receive",
            r"Unable to find the hostfile|duplicate host \S+ in the hostfile",
            r"Try '?colossalai run --help",
            r"product of the size\(\d+\) must be equal",
            r"Requested more processes \(\d+\) than",
            r"Invalid host input, |Not enough slots on the hosts",
            r"is not in \W?MIN:MAX\W? format|MIN:MAX format is only supported",
            r"World size \(\d+\) is not valid with the current list",
            r"using multiple machines, you need to specify the main process",
            r"Bad hostfile text",
            sign(
                r"world.?size\W{0,3}\d*\)? (?:is not|must be|should be) (?:equal|divisible|a multiple)|"
                r"(?:Error|Exception): (?!.*batch).*world.?size.{0,60}(?:divisible|multiple of|divisor of|product of)|"
                r"(?:Error|Exception): (?!.*batch).*(?:\bdivide|divis\w+ \w+|multiple of|factor of|match)"
                r" .{0,20}world.?size|"
                r"\bassert\b.{0,60}world_?size %",
                *("world size", "world_size", "worldsize"),
            ),
            r"world.?size .{0,40}(?:does not match|is not equal to|not divisible).{0,40}"
            r"(?:processes|ranks|nodes|GPUs|world)",
            r"no extra nodes available via hostfile",
            r"Cannot specify num_nodes/gpus with",
            r"requires same number of devices per node",
            r"Unable to detect suitable master address",
            r"Unknown launcher",
            r"--no[-_]python\W? (?:flag|cannot be used)|--module and --no[-_]python",
            r"'--no[-_]python' flag",
            r"(?:absent|missing) in (?:RendezvousParameters|endpoint)",
            r"rendezvous (?:configuration (?:string|option)|backend name|backend '[^']*' is not registered)",
            r"imum number of (?:rendezvous )?nodes \(",
            r"run id must be a non-empty",
            r"server_port must be specified when world_size",
            r"`(?:rank|world_size)` must be an integer",
            r"int\(\) with base 10: '[$<]",
            r"Mesh should not be bigger than default world",
            r"!= WORLD_SIZE\(",
            r"should have a unique IP address",
            r"Requested more processes \(\d+\) than there are available",
            r"tp_size must be divisible by number of nodes|Invalid launcher type",
            r"(?:Please (?:launch|use)|launch with|launched with) .{0,60}torchrun",
            r"failed to (?:bind|listen) (?:to|on) .*(?:EACCES|Permission denied)",
            r"at least 2 processes to use",
            r"Less than two GPU ids",
            r"You can only (?:use one of|pick one between) `--",
            r"`?MASTER_ADDR`? env\w* (?:was )?not set",
            r"Invalid NCCL_COMM_ID",
            r"no allocated resources for the application",
            r"No nodes are available for this job",
            r"requested hosts (?:is|are) not included",
            r"unable to open the hostfile",
            r"parse error in the hostfile",
            r"Your job failed to map",
            r"bind that would require binding",
            r"at least one node not present in",
            r"detected an attempt to run as root",
            # mpirun's boxes about hosts, slots, rank files and policies, whose lines end where they please.
            r"relative host was (?:improperly )?specified|requested number of empty hosts",
            r"specification asked for more slots on a node",
            r"detected a bad parameter in the hostfile|multiple definitions of the slot count",
            r"hostfile given is not a regular",
            r"found in the PBS_NODEFILE|PBS_NODEFILE environment\w* variable was not",
            r"slots were found in the Grid Engine",
            r"(?:unable to open|invalid syntax in) the rankfile|rankfile (?:that was used )?claimed",
            r"missing its location specification|sequence file contained a node",
            r"More processes were requested than there are",
            r"(?:mapp|bind|rank)ing (?:request|policy|directive) .{0,30}(?:unrecognized|not (?:recogniz|support)ed)",
            r"TCP networks specified .{0,20}(?:included|out-of-band)|TCP interface include and exclude",
            r"not built with SLURM(?:'s PMI)?|No PMIx server was reachable",
            r"OPAL ERROR: Unreachable in file|PMI2_Job_GetId failed",
            r"would result in binding more|Conflicting directives for|request for multiple cpus-per-proc",
            r"(?:srun|sbatch|salloc): unrecognized option",
            r"tried to bind .*something went wrong\.",
            r"mpi(?:run|exec)\S*: Error: unknown option",
            r"HYDU_parse_hostfile .*unable to open|match_arg .*unrecognized argument",
            r"(?:port number|hostname) of the (?:C10d )?rendezvous endpoint",
            r"(?:min|max)_nodes must be",
            r"Error initializing torch\.distributed using",
            r"(?:srun|sbatch|salloc): (?:error|fatal): .*(?:layout tasks|distribute tasks|Only allocated|"
            r"environment variables? conflicts|two different environment|[Ii]nvalid MPI type|mpi plugin|"
            r"(?:plugin name|context) for mpi|can not (?:be bigger|both)|overlaps with excluded|used without either|"
            r"Hostlist is empty|"
            r"confirm allocation|hostlist specified|mutually exclusive|violates accounting|"
            r"time limit is invalid|Memory required by task|not permitted|nvalid .{3,60}specifi|"
            r"node count specification|node not available|exceeds? .*limit)",
            r"You set `?(?:--)?(?:ntasks|devices|num_nodes)=\S+ (?:and \S+ )?in",
            r"Cannot determine (?:world size|(?:global|local) rank)\. Environment",
            r"(?:node|base)_rank(?:\(\d+\) != 0| not provided)|world_size\(\d+\) cannot be less",
            r"In a multi-node environment, ",
            r"launch new distributed processes with .local_rank > 0",
        ),
        cause="The launcher's arguments contradict each other or the hosts.",
        fix=(
            "One consistent set for all nodes (launch.yml renders it from torchfleet_slots, torchfleet_head and "
            "torchfleet_master_port): same node count and port, its own node or machine rank on each; for MPI one "
            "--mca btl_tcp_if_include <CIDR>."
        ),
    ),
    Rule(
        id="address_of_another",
        label="launcher_args_mismatch",
        level=SYMPTOM,
        confidence=0.5,
        signs=signs(r"(?:Error|\bbind)\b.{0,40}Cannot assign requested address"),
        cause="A process wants to listen on an address that its node does not have: the head's, or a stale one.",
        fix=(
            "Start the head on the node whose address is given, and give each node its own host address (VLLM_HOST_IP, "
            "--node-ip-address and the like) in host_vars."
        ),
    ),
    Rule(
        id="scheduler_refuses",
        label="launcher_args_mismatch",
        level=SYMPTOM,
        confidence=0.5,
        signs=signs(
            r"(?:srun|sbatch|salloc): error: (?:Batch job submission failed|Unable to (?:allocate|create step)\b)"
            r"(?!.*(?:slurm controller|Socket timed out|not responding))"
        ),
        cause="Slurm does not accept what the job asks for.",
        fix="Compare nodes, tasks, GPUs, memory, time, partition and account of the request with sinfo and sacctmgr.",
    ),
    Rule(
        id="controller_silent",
        label="node_network_down",
        level=SYMPTOM,
        confidence=0.5,
        signs=signs(r"Unable to contact slurm controller", r"error: .*Socket timed out on send/recv operation"),
        recovers=True,
        cause="Slurm's controller does not answer.",
        fix="scontrol ping; see that slurmctld runs and that this node reaches its host.",
    ),
    Rule(
        id="node_left_out",
        label="launcher_args_mismatch",
        level=HINT,
        confidence=0.4,
        signs=signs(
            r"machine_rank[\"']?[ =:]+['\"]?(?:0|\$\{?\w+)",
        ),
        needs=("several_nodes",),
        recovers=True,
        cause=(
            "A launch over several machines is asked for, and only rank 0's (or one unset rank's) command is seen: the "
            "others were perhaps not started, or all with one rank."
        ),
        fix=(
            "Start one launcher on each machine, each with its own machine_rank and the same num_machines, "
            "num_processes (the total), address and port; launch.yml does."
        ),
    ),
    Rule(
        id="local_rank_option",
        label="local_rank_argument",
        level=STATED,
        confidence=0.95,
        signs=signs(
            r"ambiguous option: --local[-_]rank",
            r"unrecognized arguments:.*--local[-_]rank",
            r"(?:required|no such option):? .*--local(?:-rank|_rank)",
            r"Unknown command line flag '?local[-_]rank",
            # As argparse, click, fire, hydra and transformers word it.
            r"(?:unrecognized|unknown|unexpected|consume|no such|non-existent|not used by|not allowed|override)"
            r".{0,60}\blocal[-_]rank\b",
            r"'Namespace' object has no attribute 'local[-_]rank'",
        ),
        outranks=("launcher_args_mismatch", "user_code"),
        cause="The launcher passes --local-rank in a spelling that the script does not know.",
        fix=(
            "Start with torchrun (launch_launcher: torchrun) and read int(os.environ['LOCAL_RANK']), or accept both "
            "--local_rank and --local-rank in the script."
        ),
    ),
    Rule(
        id="launcher_fault",
        label="launcher_bug",
        level=STATED,
        confidence=0.85,
        signs=signs(
            r"buil[dt] without libuv support",
            r"KeyError: ['\"]PDSH_SSH_ARGS_APPEND",
            r"UnboundLocalError: .*(?:hostfile|active_resources|launch_cmd|ssh_)",
        ),
        cause="The launcher itself stumbles over a case that its authors forgot.",
        fix=(
            "Take another release of the launcher; for PDSH_SSH_ARGS_APPEND also launch_env: {{PDSH_SSH_ARGS_APPEND: "
            "''}}."
        ),
    ),
    # The launcher swallowed what happened.
    Rule(
        id="launcher_failed_on_host",
        label="insufficient_log",
        level=ECHO,
        confidence=0.5,
        signs=signs(r"failed to run torchrun (?:.* on (?P<host>[\w.-]+))?"),
        cause="The launcher reports a failure on {host} and swallowed the error itself.",
        fix=(
            "Run the printed torchrun command on {host} by hand (or launch.yml, which keeps each rank's log) and "
            "explain that output."
        ),
    ),
    Rule(
        id="build_failed",
        label="insufficient_log",
        level=ECHO,
        confidence=0.5,
        signs=signs(
            r"'ninja', '-v'[^]]*\]' returned non-zero",
            r"Error building extension",
            r"Error compiling objects for extension",
            r"ninja: build stopped",
            r"^\s*FAILED: \S+\.o\b",
            r"setup\.py \w+ did not run successfully",
            r"error: subprocess-exited-with-error",
        ),
        # What is raised afterwards is about the extension that is not there.
        outranks=("user_code",),
        cause="The build of an extension failed; the compiler's own message is not in this log.",
        fix=(
            "Look above for the first line with 'error:' or 'fatal error:', or run ninja -v in the extension's folder "
            "under ~/.cache/torch_extensions and explain that output."
        ),
    ),
)
