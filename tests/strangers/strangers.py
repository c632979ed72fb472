# SPDX-License-Identifier: Apache-2.0
"""What the scripts run_*.py share: fetching packages, the neighbour, one run of a program, and the table.

Each script runs one program that was not written for ctxbroker:

  alone          twice, for its results and its rate
  beside resets  the control: a library in its process resets the device, and the damage must show
  quiet          twice under ctxb-run, its libraries as tenants by pattern, without resets: for the rate
  shield alone   under ctxb-run without tenants, beside the same resets: the driver refuses every one
  each           under ctxb-run --each, beside the same resets
  private, green, shared
                 under ctxb-run beside the same resets, as tenants in each kind of lease: nothing may go wrong

Packages are fetched into build/strangers and never go into the repository. The environment of a run says to the
neighbour (neighbour.c) what it does, and from when on.
"""
import argparse
import ctypes
import dataclasses
import glob
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent.parent
PROGRAMS = HERE / "programs"
NEIGHBOUR_TENANT = "test.neighbour"
TOLERANCE = 1e-4     # of a loss or a sum, against the run alone
SKIPPED = 77         # the status of a script whose program cannot run here
ENOUGH = 0.97        # of the rate alone, under ctxb-run without resets

# Loads the neighbour as a Python program does that imports a careless package, and then runs the program.
LOADER = ("import ctypes, os, runpy, sys; neighbour = ctypes.CDLL(os.environ['CTXB_NEIGHBOUR_FILE']); "
          "sys.argv = sys.argv[1:]; sys.path[0] = os.path.dirname(sys.argv[0]); "
          "runpy.run_path(sys.argv[0], run_name='__main__')")


class Skipped(Exception):
    """The program cannot run here. Says why."""


# ---- What a script says about its program --------------------------------------------------------


@dataclasses.dataclass
class Program:
    name: str                     # of its files
    title: str                    # above its table
    tenants: dict                 # tenant: patterns of its libraries
    script: str = ""              # in programs/, for a Python program
    python: tuple = (3, 9)        # the oldest
    modules: tuple = ()           # (module, what pip installs if it is missing)
    pins: tuple = ()              # what pip installs beside that, for what these need
    wheels: tuple = ()            # NAME==VERSION, fetched and unpacked beside each other
    site: str = ""                # the folder of those wheels, where several programs share it
    debs: tuple = ()
    beside_resets: bool = True    # it also runs beside resets
    is_harmed: bool = True        # by resets, without ctxbroker
    why_unharmed: str = ""
    preload: bool = False         # LD_PRELOAD brings the neighbour, else ctypes does
    process: str = "python"       # how the program's file name begins, in which the neighbour works
    variables: dict = dataclasses.field(default_factory=dict)

    def add_options(self, parser):
        """Options of its own script."""

    def take_options(self, options):
        """Their values."""

    def more(self, place):
        """Further lines under its table, and whether all is well."""
        return [], True

    def is_installed(self):
        """Whether the system has what `debs` would bring."""
        return False

    def prepare(self, place):
        """What it needs besides packages; raises Skipped."""

    def command(self, place, folder):
        return [place.python, str(PROGRAMS / self.script), "--seconds", str(place.options.seconds)]

    def environment(self, place, folder):
        return {}

    def result(self, place, folder, output):
        """What came out: work, rate, unit, values; None if it did not end well."""
        for line in output.splitlines():
            if line.startswith("RESULT "):
                return json.loads(line[7:])
        return None


# ---- Where things are ----------------------------------------------------------------------------


class Place:
    """Folders, the Python, ctxb-run and the neighbour of one script's runs."""

    def __init__(self, program, options):
        self.program, self.options = program, options
        self.build = options.build.resolve()
        self.packages = (options.packages or self.build / "packages").resolve()
        # Unpacked wheels, in a folder of the name that some plug-ins look for, and unpacked packages of Debian.
        self.site = self.build / (program.site or program.name) / "site-packages"
        self.root = self.build / f"root-{program.name}"
        self.python = ""
        self.version = ""
        self.ctxb_run = find_ctxb_run(options)
        self.alone_library_path = absolute(options.alone_library_path)
        self.neighbour = None
        self.seconds_alone = 0
        self.build.mkdir(parents=True, exist_ok=True)

    def environment(self, folder):
        variables = dict(os.environ)
        for name in [one for one in variables if one.startswith("CTXB_NEIGHBOUR")]:
            del variables[name]
        paths = [str(self.site)] if self.program.wheels else []
        paths += [variables["PYTHONPATH"]] if variables.get("PYTHONPATH") else []
        if paths:
            variables["PYTHONPATH"] = os.pathsep.join(paths)
        variables.update(XDG_CONFIG_HOME=str(self.build / "config"), PYTHONUNBUFFERED="1", PYTHONFAULTHANDLER="1",
                         TORCHINDUCTOR_CACHE_DIR=str(self.build / "cache/inductor"),
                         TRITON_CACHE_DIR=str(self.build / "cache/triton"), XLA_PYTHON_CLIENT_PREALLOCATE="false")
        variables.update(self.program.variables)
        variables.update(self.program.environment(self, folder))
        return variables


def absolute(path):
    """For runs, which have another working folder. A virtual environment's link to its Python stays one."""
    return str(path.absolute()) if path else ""


def find_ctxb_run(options):
    if options.ctxb_run:
        return str(options.ctxb_run.resolve())
    built = SOURCE / "build/release/bin/ctxb-run"
    return shutil.which("ctxb-run") or (str(built) if built.exists() else "")


def run_quietly(command, **more):
    """A helper's run: its output, or Skipped with the end of it."""
    done = subprocess.run([str(one) for one in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", check=False, **more)
    if done.returncode != 0:
        raise Skipped(f"{' '.join(str(one) for one in command[:6])}: {' '.join(done.stdout.split())[-300:]}")
    return done.stdout


# ---- Packages -------------------------------------------------------------------------------------


def find_python(oldest, wanted):
    """The Python for a program: the one named, the one that runs this script, or a newer one that is there."""
    candidates = [absolute(wanted)] if wanted else [sys.executable] + [f"python3.{minor}" for minor in range(15, 8, -1)]
    if not wanted:
        candidates += sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python3")), reverse=True)
    seen = []
    for candidate in candidates:
        done = subprocess.run([candidate, "-c", "import sys; print(*sys.version_info[:2])"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, check=False) if shutil.which(candidate) else None
        if done is None or done.returncode != 0:
            continue
        version = tuple(int(part) for part in done.stdout.split())
        seen.append(".".join(map(str, version)))
        if version >= oldest:
            return shutil.which(candidate), version
    raise Skipped(f"needs Python {'.'.join(map(str, oldest))} or later; here is {', '.join(seen) or 'none'}")


def has_module(place, module):
    code = f"import importlib.util as u, sys; sys.exit(u.find_spec('{module}') is None)"
    return subprocess.run([place.python, "-c", code], env=place.environment(place.build), stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, check=False).returncode == 0


def wheel_of(place, requirement):
    name, version = requirement.split("==")
    found = sorted(place.packages.glob(f"{name.replace('-', '_')}-{version}-*.whl"))
    return found[0] if found else None


def fetch_wheels(place):
    place.packages.mkdir(parents=True, exist_ok=True)
    for requirement in place.program.wheels:
        if wheel_of(place, requirement) is None:
            if place.options.packages and not place.options.fetch_only:
                raise Skipped(f"{requirement} is not in {place.packages}")
            command = [place.python, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d",
                       place.packages, requirement]
            run_quietly(command)


def fetch_debs(place):
    if not place.program.debs or (place.program.is_installed() and not place.options.fetch_only):
        return
    place.packages.mkdir(parents=True, exist_ok=True)
    missing = [name for name in place.program.debs if not list(place.packages.glob(f"{name}_*.deb"))]
    if missing:
        if place.options.packages and not place.options.fetch_only:
            raise Skipped(f"{missing[0]} is not in {place.packages}")
        run_quietly(["apt-get", "download", "-q", *missing], cwd=place.packages)


def unpack(place):
    wheels = [wheel_of(place, one) for one in place.program.wheels]
    stamp, key = place.site / "unpacked", "\n".join(f"{one.name} {one.stat().st_size}" for one in wheels)
    if wheels and not (stamp.exists() and stamp.read_text() == key):
        shutil.rmtree(place.site, ignore_errors=True)
        place.site.parent.mkdir(exist_ok=True)
        run_quietly([place.python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile",
                     "--target", place.site, *wheels])
        stamp.write_text(key)
    if place.program.debs and not place.program.is_installed() and not place.root.exists():
        part = place.root.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        for name in place.program.debs:
            run_quietly(["dpkg", "-x", next(place.packages.glob(f"{name}_*.deb")), part])
        part.rename(place.root)


def install_modules(place):
    """Frameworks that the Python has not: into a folder of their own, unless only given packages may be used."""
    missing = [wanted for module, wanted in place.program.modules if not has_module(place, module)]
    if not missing:
        return
    if place.options.packages:
        raise Skipped(f"{place.python} has no {', '.join(missing)}")
    to = place.build / f"frameworks-{place.program.name}"
    if not to.exists():
        part = to.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        run_quietly([place.python, "-m", "pip", "install", "-q", "--target", part, *missing, *place.program.pins])
        part.rename(to)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(to), os.environ.get("PYTHONPATH")]))


def give_nvidias_libraries(place, files):
    """Puts NVIDIA's libraries where wheels look for them, ../nvidia/cu13/lib, from the Python or the toolkit that has
    them; fetches them as the last resort."""
    there = place.site / "nvidia/cu13/lib"
    if all((there / one).exists() for one in files):
        return
    code = "import sys; print('\\n'.join(sys.path))"
    folders = [pathlib.Path(line) / "nvidia" for line in run_quietly([place.python, "-c", code]).splitlines() if line]
    libraries = {}
    for folder in [path for one in folders for path in one.glob("*/lib")] + [
            pathlib.Path(one) for one in sorted(glob.glob("/usr/local/cuda*/lib*"), reverse=True)]:
        for path in folder.glob("*.so*"):
            libraries.setdefault(path.name, path)
    if not all(one in libraries for one in files):
        if place.options.packages:
            raise Skipped(f"there is no {', '.join(one for one in files if one not in libraries)}")
        run_quietly([place.python, "-m", "pip", "install", "-q", "--no-deps", "--target", place.site,
                     "nvidia-cufft<13,>=12", "nvidia-cuda-nvrtc>=13", "nvidia-nvjitlink>=13"])
        return
    there.mkdir(parents=True, exist_ok=True)
    for name, path in libraries.items():
        if not (there / name).exists():
            (there / name).symlink_to(path)


def compile_c(place, source, to, *more):
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        raise Skipped("there is no C compiler for the neighbour; name a built one with --neighbour")
    run_quietly([compiler, "-shared", "-fPIC", "-O1", "-o", to, source, *more])


def find_nvcc():
    return os.environ.get("CUDACXX") or shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")


def make_neighbour(place):
    """With a static runtime library where nvcc is, else with the driver's functions alone."""
    if place.options.neighbour:
        place.neighbour = place.options.neighbour.resolve()
        return
    place.neighbour = place.build / "libcareless.so"
    nvcc = find_nvcc()
    part = place.build / f"libcareless.so.part{os.getpid()}"
    if nvcc and place.options.neighbour_kind != "driver":
        run_quietly([nvcc, "-shared", "-O1", "-Xcompiler", "-fPIC", "-cudart", "static", "-DWITH_RUNTIME", "-o", part,
                     HERE / "neighbour.c"])
    else:
        compile_c(place, HERE / "neighbour.c", part, "-pthread", "-ldl")
    part.replace(place.neighbour)


def can_load(library):
    code = f"import ctypes; ctypes.CDLL({library!r})"
    return subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL, check=False).returncode == 0


def prepare(place):
    place.python, place.version = find_python(place.program.python, place.options.python)
    fetch_wheels(place)
    fetch_debs(place)
    if place.options.fetch_only:
        return
    unpack(place)
    install_modules(place)
    if place.program.beside_resets:
        make_neighbour(place)
    place.program.prepare(place)


# ---- One run --------------------------------------------------------------------------------------


@dataclasses.dataclass
class Arrangement:
    name: str
    lease: str = ""        # of all tenants, under ctxb-run
    neighbour: str = ""    # "reset", "hog"
    leases: dict = dataclasses.field(default_factory=dict)  # tenant: its own lease
    shield: bool = False   # under ctxb-run without tenants
    each: bool = False     # under ctxb-run --each
    memory: str = ""       # "driver" or "pool", for all tenants; "": as --memory says

    @property
    def is_protected(self):
        return bool(self.lease or self.leases or self.shield or self.each)

    def lease_of(self, tenant):
        return self.leases.get(tenant, self.lease)


EACH = Arrangement("each", neighbour="reset", each=True)
SHIELD = Arrangement("shield alone", neighbour="reset", shield=True)
ALONE, CONTROL = Arrangement("alone"), Arrangement("beside resets", neighbour="reset")


@dataclasses.dataclass
class Run:
    arrangement: Arrangement
    status: object = 0
    result: dict = None
    seconds: float = 0
    resets: tuple = (0, 0, 0)      # tried, succeeded, last status
    strikes: dict = dataclasses.field(default_factory=dict)
    has_report: bool = False
    losses: list = dataclasses.field(default_factory=list)
    unused: int = 0                # bytes that the tenants' pools kept at the end
    records: list = dataclasses.field(default_factory=list)  # texts of the broker's warnings and errors
    last_words: list = dataclasses.field(default_factory=list)

    @property
    def is_right(self):
        return self.status == 0 and self.result is not None


def broker_options(place, arrangement, folder):
    """Options of ctxb-run: which library is whose, and with which lease."""
    by_pattern = not arrangement.shield and not arrangement.each
    tenants = dict(place.program.tenants) if by_pattern else {}
    if arrangement.neighbour and by_pattern:
        tenants = {NEIGHBOUR_TENANT: ("*/" + place.neighbour.name,), **tenants}
    command = ["--report", str(folder / "report.json")] + ["--each"] * arrangement.each
    policy = {}
    if (memory := arrangement.memory or place.options.memory) and not arrangement.shield:
        policy["for_all"] = {"memory": memory}
    if place.options.as_policy and tenants:
        policy["libraries"] = [{"match": pattern, "tenant": tenant}
                               for tenant, patterns in tenants.items() for pattern in patterns]
        policy["by_id"] = {tenant: {"lease": arrangement.lease_of(tenant)} for tenant in tenants}
    else:
        for tenant, patterns in tenants.items():
            for one in patterns:
                command += ["--tenant", f"{tenant}={one}@{arrangement.lease_of(tenant)}"]
    if policy:
        (folder / "policy.json").write_text(json.dumps({"schema": "ctxbroker.policy/1", **policy}, indent=2))
        command += ["--policy", str(folder / "policy.json")]
    if place.options.driver:
        command += ["--driver", place.options.driver]
    return command


def full_command(place, arrangement, folder, variables):
    command = [str(one) for one in place.program.command(place, folder)]
    if arrangement.neighbour:
        variables.update(CTXB_NEIGHBOUR=arrangement.neighbour, CTXB_NEIGHBOUR_PROGRAM=place.program.process,
                         CTXB_NEIGHBOUR_COUNTS=str(folder / "counts"), CTXB_NEIGHBOUR_FILE=str(place.neighbour))
        variables.setdefault("CTXB_NEIGHBOUR_BEGIN", str(folder / "begin"))
        if place.program.preload:
            variables["LD_PRELOAD"] = " ".join(filter(None, [str(place.neighbour), variables.get("LD_PRELOAD")]))
        else:
            command[1:1] = ["-c", LOADER]
    if arrangement.is_protected:
        command = [place.ctxb_run, *broker_options(place, arrangement, folder), *command]
    elif place.alone_library_path:
        variables["LD_LIBRARY_PATH"] = ":".join(filter(None, [place.alone_library_path,
                                                              variables.get("LD_LIBRARY_PATH")]))
    return command


def read_reports(run, folder):
    """Reads what the reports say about the tenants, of the first process and of those that it started."""
    for path in sorted(folder.glob("report*.json")):
        report = json.loads(path.read_text())
        run.has_report = True
        for tenant in report.get("tenants", []):
            run.strikes[tenant["name"]] = run.strikes.get(tenant["name"], 0) + tenant["strikes"]
            run.unused += tenant["store_unused_bytes"]
        run.losses += [f"{lease['tenant']}: {lease['state']}" for lease in report.get("leases", [])
                       if lease["state"] != "ready"]
        run.records += [one["text"] for one in report.get("records", [])]


def run_once(place, arrangement, number=0):
    name = "".join(one if one.isalnum() else "-" for one in arrangement.name)
    folder = place.build / "runs" / place.program.name / f"{name}-{number}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    run = Run(arrangement)
    variables = place.environment(folder)
    command = full_command(place, arrangement, folder, variables)
    (folder / "command.json").write_text(json.dumps(command, indent=1))
    begun = time.monotonic()
    with open(folder / "output", "wb") as output, open(folder / "errors", "wb") as errors:
        # A group of its own, so that what hangs is ended with all that it started.
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=variables,
                                 cwd=folder, start_new_session=True)
        limit = place.options.timeout
        if arrangement == CONTROL:  # which may hang
            limit = min(limit, max(place.options.control_timeout, 2 * place.seconds_alone))
        try:
            run.status = child.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            run.status = f"did not end in {limit:.0f} s"
    run.seconds = time.monotonic() - begun
    if arrangement == ALONE:
        place.seconds_alone = max(place.seconds_alone, run.seconds)
    texts = [(folder / name).read_text(errors="replace") for name in ("output", "errors")]
    if run.status == 0:
        run.result = place.program.result(place, folder, "\n".join(texts))
    (folder / "frames").unlink(missing_ok=True)  # large
    if (folder / "counts").exists() and (counts := (folder / "counts").read_bytes()):
        run.resets = struct.unpack("QQq", counts)
    read_reports(run, folder)
    run.last_words = [line for text in texts for line in text.splitlines() if line.strip()][-12:]
    print(f"... {place.program.name}, {arrangement.name}: status {run.status} after {run.seconds:.1f} s", file=sys.stderr,
          flush=True)
    return run


# ---- What it means --------------------------------------------------------------------------------


def same(got, wanted):
    if isinstance(got, float) and isinstance(wanted, float):
        return abs(got - wanted) <= TOLERANCE * max(abs(wanted), 1e-6)
    return got == wanted


def differing(run, alone):
    """Names of the values that are not those of the run alone."""
    wanted = alone.result["values"]
    return [name for name in wanted if not same(run.result["values"].get(name), wanted[name])]


def how_it_ended(run):
    words = next((line for line in reversed(run.last_words) if "WRONG" in line or "rror" in line), "")
    if isinstance(run.status, int) and run.status < 0:
        return f"ended by signal {-run.status}"
    return f"{run.status}{': ' if words else ''}{words.strip()[:90]}" if run.status else "no result"


def own_strikes(run):
    """Those of all tenants but the neighbour, whose name --each takes from its file."""
    return sum(strikes for tenant, strikes in run.strikes.items()
               if tenant != NEIGHBOUR_TENANT and "careless" not in tenant)


def judge(program, run, alone):
    """In words, and whether it is as it should be."""
    arrangement = run.arrangement
    if not arrangement.is_protected:
        if not arrangement.neighbour:
            if not run.is_right:
                return f"FAILED: {how_it_ended(run)}", False
            missing = [name for name, value in run.result["values"].items() if str(value).startswith("left out")]
            return (f"INCOMPLETE: without {', '.join(missing)}", False) if missing else ("right", True)
        if run.is_right and not (alone.is_right and differing(run, alone)):
            if arrangement.neighbour == "hog":
                return "slowed down", True
            if program.is_harmed:
                return "NO DAMAGE TO BE SEEN", False
            return f"unharmed: {program.why_unharmed}", True
        if arrangement.neighbour == "reset" and run.resets[0] == 0:
            return f"FAILED BEFORE THE FIRST RESET: {how_it_ended(run)}", False
        return f"damage: {how_it_ended(run)}", True
    if not run.is_right:
        return f"WRONG: {how_it_ended(run)}", False
    if alone.is_right and (names := differing(run, alone)):
        return f"WRONG: {', '.join(names)}", False
    if not run.has_report:
        return "WRONG: no report", False
    if arrangement.neighbour == "reset" and run.resets[1] == 0 and run.resets[0] == 0:
        return "WRONG: no reset was tried", False
    if arrangement.shield and program.is_harmed and run.resets[1]:
        return "WRONG: a reset was let through", False
    if own_strikes(run):
        return "WRONG: the program has strikes", False
    if run.losses:
        return f"WRONG: {', '.join(run.losses)}", False
    return "right", True


def text_of(values):
    return ", ".join(f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}"
                     for name, value in values.items())


def row(program, run, alone_rate, alone):
    words, is_good = judge(program, run, alone)
    result, rate, share = run.result or {}, "-", "-"
    if result.get("rate"):
        rate = f"{result['rate']:.1f} {result['unit']}"
        share = f"{result['rate'] / alone_rate:.3f}" if alone_rate else "-"
    resets = "-"
    if run.arrangement.neighbour == "reset":
        resets = f"{run.resets[1]} of {run.resets[0]}"
        if run.resets[1] != run.resets[0]:
            resets += f" ({run.resets[2]})"
    strikes = "-"
    if run.has_report and not run.arrangement.shield:
        all_strikes = sum(run.strikes.values())
        own = own_strikes(run)
        strikes = f"{own} / {all_strikes - own}" if run.arrangement.neighbour else str(own)
    unused = "-" if strikes == "-" else f"{run.unused / 2**20:.1f}"
    return [run.arrangement.name, result.get("work", "-"), rate, share, resets, strikes, unused, words], is_good


HEAD = ["arrangement", "work", "rate", "of alone", "resets", "strikes own / neighbour", "in pools unused, MiB",
        "result"]


def table(rows):
    widths = [max(len(str(line[column])) for line in rows) for column in range(len(rows[0]))]
    lines = ["| " + " | ".join(str(cell).ljust(width) for cell, width in zip(line, widths)) + " |"
             for line in rows]
    return [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]


class Report:
    """What one script prints, and writes to a file."""

    def __init__(self, options):
        self.options, self.skipped = options, []

    def say(self, *lines):
        for line in lines:
            print(line, flush=True)
        if self.options.out and lines:
            with open(self.options.out, "a") as file:
                file.write("\n".join(lines) + "\n")


# ---- A whole script -------------------------------------------------------------------------------


def quiet(options):
    return Arrangement("quiet", lease=options.quiet_lease)


def rate_runs(place):
    """Alone and quiet by turns, so that both see the machine in the same state."""
    runs = []
    for number in range(place.options.repeat):
        runs.append(run_once(place, ALONE, number))
        if not runs[0].is_right:
            break  # what does not work alone shows nothing
        if place.ctxb_run:
            runs.append(run_once(place, quiet(place.options), number))
    return runs


def reset_arrangements(place):
    if place.options.rates_only or not place.program.beside_resets:
        return []
    found = [CONTROL]
    if place.ctxb_run:
        found += [SHIELD, EACH]
        found += [Arrangement(lease, lease=lease, neighbour="reset") for lease in place.options.leases]
    return found


def best(runs, name):
    return max((one.result["rate"] for one in runs if one.arrangement.name == name and one.is_right), default=0)


def conclude(place, report, runs, more=()):
    """Prints the table of all runs. Returns whether everything is as it should be."""
    program = place.program
    alone = next(one for one in runs if one.arrangement.name == "alone")
    alone_rate = best(runs, "alone")
    rows, all_good, wrong = [HEAD], True, []
    for run in runs:
        cells, is_good = row(program, run, alone_rate, alone)
        rows.append(cells)
        all_good = all_good and is_good
        if not is_good:
            wrong.append(run)
    report.say("", f"## {program.title}", "")
    version = (alone.result or {}).get("version", "")
    report.say(f"{version + ', ' if version else ''}Python {'.'.join(map(str, place.version))}", "", *table(rows), "")
    if alone.result:
        report.say(f"Results: {text_of(alone.result['values'])}.")
    quiet_rate = best(runs, "quiet")
    if alone_rate and quiet_rate:
        share = quiet_rate / alone_rate
        if place.options.rates_only and share < ENOUGH:
            all_good = False
        report.say(f"Rate under ctxb-run without resets: {share:.3f} of the rate alone"
                   f"{'' if share >= ENOUGH else '  <-- TOO SLOW'}.")
    if not place.ctxb_run:
        report.say("There is no ctxb-run here: it ran alone, and as the control.")
    report.say(*more)
    for run in wrong:
        report.say("", f"The last words of '{run.arrangement.name}' (status {run.status}, {run.seconds:.0f} s, "
                       f"strikes {run.strikes}, losses {run.losses}):",
                   *("    " + line[:200] for line in run.last_words))
    return all_good


def parser_of(text):
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ctxb-run", type=pathlib.Path, help="default: of PATH, or of build/release")
    parser.add_argument("--build", type=pathlib.Path, default=SOURCE / "build/strangers",
                        help="where packages and results go")
    parser.add_argument("--packages", type=pathlib.Path,
                        help="a folder that an earlier --fetch-only filled; then nothing is fetched")
    parser.add_argument("--fetch-only", action="store_true", help="fetch the packages, and do no more")
    parser.add_argument("--python", type=pathlib.Path, help="which runs the program; default: one that is new enough")
    parser.add_argument("--seconds", type=float, default=3, help="of work in each run")
    parser.add_argument("--timeout", type=float, default=90, help="seconds after which a run is ended")
    parser.add_argument("--control-timeout", type=float, default=30,
                        help="the same for the control, which may hang; it gets at least twice as long as the run alone")
    parser.add_argument("--repeat", type=int, default=2, help="runs for each rate")
    parser.add_argument("--rates-only", action="store_true",
                        help="no resets, and status 1 for a rate that is too low; for a machine that does nothing else")
    parser.add_argument("--leases", nargs="+", default=["private", "green", "shared"], help="beside resets")
    parser.add_argument("--quiet-lease", default="auto", help="of the runs under ctxb-run without resets")
    parser.add_argument("--memory", choices=("driver", "pool"),
                        help="where the device memory of all tenants comes from, as a line of a policy file")
    parser.add_argument("--as-policy", action="store_true", help="patterns and leases as a policy file, not as options")
    parser.add_argument("--driver", help="which ctxb-run uses: auto, nvidia, software")
    parser.add_argument("--alone-library-path", type=pathlib.Path,
                        help="where a run without ctxb-run finds the driver, if that is not the system's")
    parser.add_argument("--neighbour", type=pathlib.Path,
                        help="a built neighbour; default: built here from neighbour.c")
    parser.add_argument("--neighbour-kind", choices=("auto", "driver"), default="auto",
                        help="driver: resets through the driver, also where nvcc is")
    parser.add_argument("--libpython", type=pathlib.Path,
                        help="for vspipe, where the Python has no shared library of its own")
    parser.add_argument("--out", type=pathlib.Path, help="a text file to which the table is added")
    return parser


def start(program, options, report):
    """A place in which the program can run; None if it is skipped, or was only fetched."""
    place = Place(program, options)
    try:
        prepare(place)
    except Skipped as reason:
        report.skipped.append(program.name)
        report.say("", f"## {program.title}", "", f"Skipped: {reason}.")
        return None
    if options.fetch_only:
        files = sorted(place.packages.iterdir()) if place.packages.exists() else []
        report.say(f"{program.name}: fetched; {place.packages} holds {len(files)} files, "
                   f"{sum(one.stat().st_size for one in files) / 2**20:.1f} MiB")
        return None
    return place


def main(program):
    parser = parser_of(sys.modules["__main__"].__doc__)
    program.add_options(parser)
    options = parser.parse_args()
    program.take_options(options)
    report = Report(options)
    place = start(program, options, report)
    status = 0 if options.fetch_only and not report.skipped else SKIPPED
    if place is not None:
        runs, lines, good_too = rate_runs(place), [], True
        if runs[0].is_right:
            runs += [run_once(place, one) for one in reset_arrangements(place)]
            lines, good_too = program.more(place)
        status = 0 if conclude(place, report, runs, lines) and good_too else 1
    return status
