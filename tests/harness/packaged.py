"""The Debian packages: how they are built, and hosts on which they are installed."""
import functools
import re
import shutil
import subprocess

from .debian import HOUR, fetch, finish, within
from .places import TOP
from .program import run
from .rig import Booted, Host
from .waiting import eventually

PACKAGES = ["libtenure-dev", "libtenure0", "python3-tenure", "tenure-core", "tenurectl", "tenured"]
UNITS = ["tenured", "tenure-guard", "tenure-reboot", "tenure-core"]
CORE = "http://10.77.0.1:2379"  # on h1
_HERE = TOP / "tests/packages"


def _copy_sources(to):
    shutil.copytree(TOP, to, symlinks=True, ignore=lambda folder, names: (
        {"build", ".git"} if folder == str(TOP) else {"__pycache__"}))


def _unpack_tarball(to):
    """What `make dist` makes of this tree, if everything is committed. Returns whether it is."""
    changed = subprocess.run(["git", "-C", TOP, "status", "--porcelain"], capture_output=True)
    if changed.returncode != 0 or changed.stdout != b"":
        return False
    to.mkdir(parents=True)
    run("tar", "-xf", TOP / run("make", "-sC", TOP, "dist").strip(), "-C", to,
        "--strip-components=1")
    return True


def sources(tree):
    """The names of all files but what is built."""
    return {str(file.relative_to(tree)) for file in tree.rglob("*")
            if not file.is_dir() and file.relative_to(tree).parts[0] != "build"}


class Builds:
    """The packages of the tree as it is, in .first; and, where a test asks for them, built again in
    .second by another user, in another directory, time zone, language and umask, from the release's
    tarball if that has the same files (.of_tarball). In .folder, which commands see as /srv."""

    def __init__(self, folder, debian):
        self.folder, self.debian = folder, debian
        folder.chmod(0o755)  # for that user
        upstream, revision = re.match(r"tenure \((.+)-(\d+)\)",
                                      (TOP / "conf/debian/changelog").read_text()).groups()
        self.versions = [f"{upstream}-{revision}", f"{upstream}-{int(revision) + 1}"]
        self._tree = f"a/build/deb/tenure-{upstream}"  # what is compiled in the first build
        _copy_sources(folder / "a")
        self.of_tarball = _unpack_tarball(folder / "b/elsewhere")
        if not self.of_tarball:
            _copy_sources(folder / "b/elsewhere")
        run("chown", "-R", "65534:65534", folder / "b")
        self.sources_before = sources(folder / "a")
        # The unit tests run elsewhere as well, but not with a suite's libraries.
        options = "" if debian.suite else "nocheck"
        self._within("make-deb", "env", "TZ=UTC", "LC_ALL=C.UTF-8", "KEEP=1",
                     f"DEB_BUILD_OPTIONS={options}", "make", "-C", "/srv/a", "deb")
        self.sources_after = sources(folder / "a")
        self.first = self._kept("1", "*")

    @functools.cached_property
    def second(self):
        self._within("make-deb-elsewhere", "setpriv", "--reuid=65534", "--regid=65534",
                     "--clear-groups", "env", "TZ=Asia/Kathmandu", "LC_ALL=C", "HOME=/nonexistent",
                     "USER=nobody", "DEB_BUILD_OPTIONS=nocheck", "sh", "-c",
                     "umask 077; exec make -C /srv/b/elsewhere deb")
        return self.folder / "b/elsewhere/build/deb"

    def __repr__(self):
        """In the name of a folder."""
        return self.debian.suite or "here"

    def _within(self, name, *words):
        return finish(self.folder / f"{name}.log",
                      *within(self.debian.builds, self.folder, *words))

    def _kept(self, name, files):
        """Those files of the first build, in a folder of that name."""
        kept = self.folder / name
        kept.mkdir()
        for file in (self.folder / "a/build/deb").glob(files):
            if file.is_file():
                shutil.copy2(file, kept)
        return kept

    @staticmethod
    def names(folder):
        return sorted(file.name for file in folder.glob("*.deb"))

    def packages(self, version):
        """Their paths, from .folder; version 1 or 2."""
        return [f"{version}/{name}" for name in self.names(self.folder / str(version))
                if "-dbgsym_" not in name]

    def complaints(self):
        """What lintian says of them, and of itself; before a release UNRELEASED is no fault."""
        return self._within("lintian", "sh", "-c", "lintian --allow-root --fail-on error,warning "
                            "--suppress-tags unreleased-changes /srv/1/*.changes")

    def make_next_version(self):
        """Of what is compiled already. A suite's hosts can install both then."""
        changelog = self.folder / self._tree / "debian/changelog"
        changelog.write_text(changelog.read_text().replace(*self.versions, 1))
        self._within("next-version", "env", f"-C/srv/{self._tree}", "DEB_BUILD_OPTIONS=nocheck",
                     "dpkg-buildpackage", "--build=binary", "--no-sign", "--no-pre-clean")
        self._kept("2", f"*_{self.versions[1]}_*")
        if self.debian.suite:
            fetch(self.debian.hosts, self.folder, *[f"/srv/{name}" for name in self.packages(1)])

    @property
    def core(self):
        """The path of tenure-core in /srv."""
        built, = (self.folder / self._tree).glob("build/*/bin/tenure-core")
        return f"/srv/{built.relative_to(self.folder)}"


class Installable(Host):
    """A host for packages. @builds are its /build."""

    def __init__(self, rig, name):
        super().__init__(rig, name)
        self.before = set()  # its traces without our packages

    def _packages(self, version):
        return [f"/build/{name}" for name in self.rig.builds.packages(version)]

    def _admin(self, *words):
        """Returns all that it says."""
        return self.on("env", "DEBIAN_FRONTEND=noninteractive", "sh", "-c", 'exec "$@" 2>&1', "sh",
                       *words, patience=HOUR)

    def _apt(self, *words):
        return self._admin("apt-get", "-q", "-y", "--no-install-recommends", "install", *words)

    def install_dependencies(self):
        """Of our packages, and none of these."""
        planned = self._apt("--simulate", *self._packages(1))
        names = re.findall(r"^Inst (\S+)", planned, re.M)
        self._apt(*[name for name in names if name not in PACKAGES])

    def install(self, version):
        return self._admin("dpkg", "--install", *self._packages(version))

    def install_first(self):
        """By apt, which judges what they depend on; a copy of this machine may lack its lists."""
        if self.rig.builds.debian.suite:
            self._apt(*self._packages(1))
        else:
            self.install(1)

    def remove(self):
        self._admin("dpkg", "--remove", *PACKAGES)

    def purge(self):
        self._admin("dpkg", "--purge", *PACKAGES)

    def traces(self):
        return set(self.on("sh", stdin=(_HERE / "traces.sh").read_text()).splitlines())

    def nothing_is_left(self):
        """All is as it was before the packages came."""
        now = self.traces()
        assert now == self.before, (f"{self.name} has in addition {sorted(now - self.before)}, and "
                                    f"lacks {sorted(self.before - now)}")
        return True

    def versions(self):
        return set(self.on("dpkg-query", "-W", "-f", "${Version}\n", *PACKAGES).split())

    def states(self, *units):
        return {unit: f"{self.show(unit, 'UnitFileState')} {self.show(unit, 'ActiveState')}"
                for unit in units}

    def pids(self):
        """Of our services."""
        return [int(self.show(unit, "MainPID")) for unit in UNITS]

    def programs(self):
        """What they run."""
        return {self.on("readlink", f"/proc/{pid}/exe").strip() for pid in self.pids()}

    def processes_of_ours(self):
        return re.findall("/usr/bin/tenure.*", self.on("ps", "-eo", "args="))

    def join(self):
        self.systemctl("enable", "-q", "--now", "tenure-core", "tenured")

    def is_joined(self):
        return set(self.nodes()) == {"h1", "h2"} and self.is_active("bound")

    def tidy(self):
        self.purge()
        self.nothing_is_left()


class Bare(Booted):
    """Hosts without our packages."""

    def __init__(self, folder, ttl, builds, size, kind=Installable):
        self.builds, self.ttl = builds, ttl
        super().__init__(folder, size, _HERE / "prepare.sh", kind,
                         TREE=str(builds.debian.hosts), BUILD=str(builds.folder))
        for host in self.hosts.values():
            if builds.debian.suite:
                assert f"VERSION_CODENAME={builds.debian.suite}\n" in \
                    host.on("cat", "/etc/os-release")
                host.install_dependencies()
            host.before = host.traces()
            ours = [trace for trace in host.before
                    if re.search("tenured|tenure-core|tenurectl|run/tenure", trace)]
            assert not ours, f"{host.name} has already {ours}"


class Pair(Bare):
    """h1 and h2."""

    def __init__(self, folder, ttl, builds):
        super().__init__(folder, ttl, builds, 2)

    def install(self):
        for host in self.hosts.values():
            host.install_first()

    def join(self):
        """Both hosts, at the core on h1. h2 has a core of its own, as it comes."""
        (self.h1.root / "etc/tenure/tenure-core.conf").write_text(
            f"[Core]\nName=h1\n[Clients]\nListenClientURLs={CORE}\n")
        self.settings = f"[Agent]\nEndpoints={CORE}\nTTL={self.ttl}\n"
        for host in self.hosts.values():
            (host.root / "etc/tenure/tenured.conf").write_text(self.settings)
            host.join()
        for host in self.hosts.values():
            eventually(host.is_joined)
