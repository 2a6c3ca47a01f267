#!/usr/bin/env python3
"""The Yocto layer and the Buildroot tree fit the project: their options are ones that CMake knows,
their Kconfig symbols exist, every installed file has its package, the units are those of
platforms/systemd. Controls: seeded into a copy, each kind of mistake is found.

Neither BitBake nor Buildroot runs here. Of BitBake's language `Recipe` reads what the recipe uses;
Buildroot's cmake-package and the Kconfig symbols of its own are stand-ins (STAND_IN_*)."""

import fnmatch
import glob
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
BUILD = os.environ.get("HOLDFAST_BUILD", os.path.join(ROOT, "build/release"))
RECIPE = "platforms/yocto/recipes-holdfast/holdfast/holdfast_0.1.0.bb"
BUILDROOT = "platforms/buildroot"
UNITS = sorted(map(os.path.basename, glob.glob(os.path.join(ROOT, "platforms/systemd/*.service"))))

try:
    import kconfiglib
except ImportError:  # Debian's package, and a python3 that is not Debian's
    sys.path.append("/usr/lib/python3/dist-packages")
    try:
        import kconfiglib
    except ImportError:
        print("skipped: no python3-kconfiglib")
        sys.exit(77)


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


# -- CMake -------------------------------------------------------------------------------------------


def configure(build, options):
    """Findings of a configuration of the project with these options."""
    run = subprocess.run(
        ["cmake", "-G", "Ninja", "-S", ROOT, "-B", build, "-DCMAKE_INSTALL_PREFIX=/usr",
         "-DCMAKE_INSTALL_LIBDIR=lib", "-UCCACHE", *options], capture_output=True, text=True)
    if run.returncode != 0:
        yield f"cmake fails with {options}:\n{run.stderr}"
        return
    unused = re.search(r"Manually-specified variables were not used by the project:\s*(.*?)\n\n",
                       run.stderr + "\n\n", re.S)
    if unused:
        yield f"options that the project does not know: {unused[1].split()}"
    with open(os.path.join(build, "CMakeFiles/rules.ninja"), encoding="utf-8") as f:
        if "ccache" in f.read():
            yield "ccache is used: the build system has its own"


def install(build, tree):
    """Into `tree` what `cmake --install` gives, with the products of the build under test."""
    for pattern in ("cli/holdfast", "lib/libholdfast.a", "lib/libholdfast.so*"):
        products = glob.glob(os.path.join(BUILD, pattern))
        if not products:
            yield f"no {pattern} in {BUILD}: build the target `product` there"
        for product in products:
            target = os.path.join(build, os.path.dirname(pattern), os.path.basename(product))
            if not os.path.lexists(target):
                shutil.copy2(product, target, follow_symlinks=False)
    run = subprocess.run(["cmake", "--install", build], capture_output=True, text=True,
                         env={**os.environ, "DESTDIR": tree})
    if run.returncode != 0:
        yield f"cmake --install: {run.stderr}"


def shell(commands, what):
    run = subprocess.run(["sh", "-euc", commands], capture_output=True, text=True)
    if run.returncode != 0:
        yield f"{what} fails: {run.stderr}"


def entries(tree):
    """Files, links and empty folders, as paths from the root of the image."""
    for folder, folders, files in os.walk(tree):
        names = files + [name for name in folders if not os.listdir(os.path.join(folder, name))]
        for name in names:
            yield "/" + os.path.relpath(os.path.join(folder, name), tree)


def units_fit(paths, folder):
    """The installed units are those of platforms/systemd, and what they start is there."""
    installed = sorted(os.path.basename(p) for p in paths if p.endswith(".service"))
    if installed != UNITS:
        yield f"installed units {installed}, platforms/systemd has {UNITS}"
    for unit in UNITS:
        if f"{folder}/{unit}" not in paths:
            yield f"{unit} is not in {folder}"
        program = re.search(r"^ExecStart=(\S+)", read(f"platforms/systemd/{unit}"), re.M)[1]
        if program not in paths:
            yield f"{unit} starts {program}, which is not installed"


def project_version():
    return re.search(r"project\(holdfast VERSION (\S+)", read("CMakeLists.txt"))[1]


# -- Yocto -------------------------------------------------------------------------------------------


class Recipe:
    """As much of BitBake's language as the recipe uses. All else is an error, and so is a variable
    that is neither set nor among `known`."""

    ASSIGNMENT = re.compile(r'([\w:${}-]+)\s*(=\+|=)\s*"(.*)"$')

    def __init__(self, text, known):
        self.values, self.functions, self.classes = dict(known), {}, []
        lines = iter(text.replace("\\\n", " ").splitlines())
        for line in lines:
            self._read(line.rstrip(), lines)

    def _read(self, line, lines):
        assignment = self.ASSIGNMENT.match(line)
        function = re.match(r"([\w:]+)\(\) \{$", line)
        if not line or line.startswith("#"):
            return
        if line.startswith("inherit "):
            self.classes += line.split()[1:]
        elif function:
            self.functions[function[1]] = "\n".join(iter(lambda: next(lines), "}"))
        elif assignment:
            name, operator, value = assignment.groups()
            name = self.expand(name)
            self.values[name] = f"{value} {self.values[name]}" if operator == "=+" else value
        else:
            raise ValueError(f"{RECIPE}: not understood: {line}")

    def expand(self, text):
        while "${" in text:
            text = re.sub(r"\$\{([^}]*)\}", lambda match: self.values[match[1]], text)
        return text

    def words(self, name):
        return self.expand(self.values[name]).split()


def known_to_bitbake(tree):
    return {
        "PN": "holdfast", "BPN": "holdfast", "D": tree, "S": ROOT, "WORKDIR": "/work",
        "HOLDFAST_SOURCE": ROOT, "EXTENDPKGV": "0.1.0-r0", "bindir": "/usr/bin", "libdir": "/usr/lib",
        "includedir": "/usr/include", "sysconfdir": "/etc", "docdir": "/usr/share/doc",
        "localstatedir": "/var", "base_sbindir": "/sbin",
        "systemd_system_unitdir": "/usr/lib/systemd/system",
        "PACKAGES": "${PN}-src ${PN}-dbg ${PN}-staticdev ${PN}-dev ${PN}-doc ${PN}-locale ${PN}",
    }


def packages(recipe, paths):
    """The package of each path, None for none, by BitBake's rule: the first whose FILES match."""
    owner = dict.fromkeys(paths)
    unmatched = []
    for package in recipe.words("PACKAGES"):
        for pattern in recipe.words(f"FILES:{package}") if f"FILES:{package}" in recipe.values else []:
            matching = [p for p in paths if fnmatch.fnmatchcase(p, pattern) or p.startswith(pattern + "/")]
            unmatched += [] if matching else [f"FILES:{package} names {pattern}, which is not installed"]
            for path in matching:
                owner[path] = owner[path] or package
    return owner, unmatched


PACKAGE_OF = {
    "/usr/bin/holdfast": "holdfast",
    "/etc/holdfast": "holdfast",
    "/usr/lib/systemd/system/holdfast-relay@.service": "holdfast",
    "/usr/lib/libholdfast.so.0": "libholdfast",
    "/usr/lib/libholdfast.so": "holdfast-dev",
    "/usr/lib/libholdfast.a": "holdfast-staticdev",
    "/usr/include/holdfast/outbox.hpp": "holdfast-dev",
    "/usr/share/doc/holdfast/examples/relay.conf": "holdfast-doc",
}


def recipe_findings(text, work):
    build = os.path.join(work, "yocto")  # the same for all: the second time, CMake is quick
    with tempfile.TemporaryDirectory(dir=work) as tree:
        try:
            recipe = Recipe(text, known_to_bitbake(tree))
            yield from configure(build, recipe.words("EXTRA_OECMAKE"))
            yield from install(build, tree)
            yield from shell(recipe.expand(recipe.functions["do_install:append"]), "do_install:append")
            yield from image_findings(recipe, sorted(entries(tree)))
        except KeyError as missing:
            yield f"{RECIPE}: {missing} is not known"
    if os.path.basename(RECIPE) != f"holdfast_{project_version()}.bb":
        yield f"{RECIPE}: the project has version {project_version()}"


def image_findings(recipe, paths):
    owner, unmatched = packages(recipe, paths)
    yield from unmatched
    yield from (f"{path} is in no package" for path in paths if owner[path] is None)
    yield from (f"{path} is in {owner.get(path)}, not in {package}"
                for path, package in PACKAGE_OF.items() if owner.get(path) != package)
    yield from units_fit(paths, "/usr/lib/systemd/system")
    services = sorted(recipe.words("SYSTEMD_SERVICE:holdfast"))
    if services != UNITS:
        yield f"SYSTEMD_SERVICE is {services}, platforms/systemd has {UNITS}"
    if recipe.words("USERADD_PARAM:holdfast")[-1] != "holdfast":
        yield "USERADD_PARAM makes another user than holdfast"


# -- Buildroot ---------------------------------------------------------------------------------------

# What Buildroot's own makefiles give to external.mk. `ask` prints all that the packages set; it is a
# recipe, so $(@D) is the folder of its target, as it is the source folder in Buildroot's.
STAND_IN_MAKE = """
INSTALL = install
github = https://github.com/$(1)/$(2)/archive/$(3)
pkgdir = $(dir $(lastword $(MAKEFILE_LIST)))
PACKAGES :=
cmake-package = PACKAGES += $(notdir $(patsubst %/,%,$(pkgdir)))
HOLDFAST_PKGDIR = $(BR2_EXTERNAL_HOLDFAST_PATH)/package/holdfast/
include $(BR2_EXTERNAL_HOLDFAST_PATH)/external.mk
.PHONY: $(SOURCE)/ask
$(SOURCE)/ask: ; @:$(foreach v,PACKAGES $(filter HOLDFAST_% NNG_%,$(.VARIABLES)),$(info @@$(v)=$($(v))))
"""


def make_variables(tree, work, **settings):
    """What make says the packages' variables are, and its complaints."""
    makefile = os.path.join(work, "stand-in.mk")
    with open(makefile, "w", encoding="utf-8") as f:
        f.write(STAND_IN_MAKE)
    settings = {"BR2_STATIC_LIBS": "", "BR2_PACKAGE_HOLDFAST": "y", "BR2_PACKAGE_SQLITE_NO_SYNC": "",
                "SOURCE": ROOT, "BR2_EXTERNAL_HOLDFAST_PATH": tree,
                **settings}
    run = subprocess.run(
        ["make", "-s", "--no-print-directory", "--warn-undefined-variables", "-f", makefile,
         *(f"{name}={value}" for name, value in settings.items()), f"{ROOT}/ask"],
        capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
    pairs = [entry.split("=", 1) for entry in run.stdout.split("@@")[1:]]
    return {name: value.rstrip("\n") for name, value in pairs}, run.stderr


def makefile_findings(tree, work):
    build = os.path.join(work, "buildroot")
    with tempfile.TemporaryDirectory(dir=work) as image:
        for static in ("y", ""):  # the second one is installed
            variables, complaints = make_variables(tree, work, TARGET_DIR=image, BR2_STATIC_LIBS=static)
            if complaints or variables.get("PACKAGES", "").split() != ["holdfast", "nng"]:
                yield f"make: {variables.get('PACKAGES')} {complaints}"
                return
            yield from configure(build, shlex.split(variables["HOLDFAST_CONF_OPTS"]))
        yield from install(build, image)
        for hook in variables["HOLDFAST_POST_INSTALL_TARGET_HOOKS"].split():
            yield from shell(variables[hook], hook)
        yield from shell(variables["HOLDFAST_INSTALL_INIT_SYSTEMD"], "HOLDFAST_INSTALL_INIT_SYSTEMD")
        yield from target_findings(variables, image)
    if variables["HOLDFAST_VERSION"] != project_version():
        yield f"HOLDFAST_VERSION is {variables['HOLDFAST_VERSION']}, the project's {project_version()}"
    if os.path.realpath(variables["HOLDFAST_SITE"]) != os.path.realpath(os.path.join(tree, "../..")):
        yield f"HOLDFAST_SITE is {variables['HOLDFAST_SITE']}"
    if "no COMMIT survives" not in make_variables(tree, work, BR2_PACKAGE_SQLITE_NO_SYNC="y")[1]:
        yield "holdfast.mk accepts a sqlite that does not sync"
    yield from hash_findings(tree, variables)


def target_findings(variables, image):
    paths = list(entries(image))
    yield from units_fit(paths, "/usr/lib/systemd/system")
    preset = os.path.join(image, "usr/lib/systemd/system-preset/80-holdfast.preset")
    if os.path.exists(preset):
        with open(preset, encoding="utf-8") as f:
            disabled = sorted(line.split()[1] for line in f if line.startswith("disable "))
        if disabled != UNITS:
            yield f"the preset disables {disabled}, platforms/systemd has {UNITS}"
    else:
        yield "no preset: Buildroot would enable the units"
    yield from preset_findings(image)
    user = variables["HOLDFAST_USERS"].split()
    if user[:1] + user[2:3] != ["holdfast", "holdfast"]:
        yield f"HOLDFAST_USERS makes another user than holdfast: {user}"
    for line in variables["HOLDFAST_PERMISSIONS"].splitlines():
        if not os.path.isdir(image + line.split()[0]):
            yield f"HOLDFAST_PERMISSIONS: no {line.split()[0]}"


def preset_findings(image):
    """What Buildroot's last step makes of the presets, ours alone and with the one of the README."""
    if not shutil.which("systemctl"):
        return
    enabled = enabled_units(image)
    if enabled:
        yield f"preset-all enables {enabled}"
    line, instance = re.search(r"^ *(enable holdfast-relay@\.service (\S+))$", read(f"{BUILDROOT}/README.md"),
                               re.M).groups()
    os.makedirs(os.path.join(image, "etc/systemd/system-preset"))
    with open(os.path.join(image, "etc/systemd/system-preset/50-app.preset"), "w", encoding="utf-8") as f:
        f.write(line + "\n")
    if f"holdfast-relay@{instance}.service" not in enabled_units(image):
        yield f"preset-all does not enable what the README says: {line}"


def enabled_units(image):
    subprocess.run(["systemctl", f"--root={image}", "preset-all"], capture_output=True, check=True)
    return [os.path.basename(p) for p in glob.glob(os.path.join(image, "etc/systemd/system/*.wants/*"))]


def hash_findings(tree, variables):
    with open(os.path.join(tree, "package/nng/nng.hash"), encoding="utf-8") as f:
        hashed = [line.split()[2] for line in f if re.match(r"sha256  [0-9a-f]{64}  \S+$", line)]
    expected = [f"nng-{variables['NNG_VERSION']}.tar.gz", *variables["NNG_LICENSE_FILES"].split()]
    if hashed != expected:
        yield f"nng.hash has {hashed}, not {expected}"


# Buildroot's own symbols that the tree names, with the dependencies and selections they have there.
REQUIRED = ("BR2_INSTALL_LIBSTDCPP", "BR2_TOOLCHAIN_GCC_AT_LEAST_12", "BR2_TOOLCHAIN_HAS_THREADS",
            "BR2_TOOLCHAIN_HAS_ATOMIC")
STAND_IN_KCONFIG = {
    **dict.fromkeys(("BR2_USE_MMU", "BR2_SHARED_LIBS", *REQUIRED), ()),
    "BR2_TOOLCHAIN_GCC_AT_LEAST_4_9": ("default y if BR2_TOOLCHAIN_GCC_AT_LEAST_12",),
    "BR2_HOST_CMAKE_AT_LEAST_3_25": (),
    **dict.fromkeys(("BR2_PACKAGE_CEREAL", "BR2_PACKAGE_CLI11", "BR2_PACKAGE_JSON_FOR_MODERN_CPP"),
                    ("depends on BR2_INSTALL_LIBSTDCPP && BR2_TOOLCHAIN_GCC_AT_LEAST_4_9",)),
    "BR2_PACKAGE_MBEDTLS": (),
    "BR2_PACKAGE_SQLITE": (),
    "BR2_PACKAGE_SQLITE_NO_SYNC": ("depends on BR2_PACKAGE_SQLITE",),
}


def parse_kconfig(tree, work, **changed):
    """The configuration with Holdfast chosen in a toolchain that has all it needs, but `changed`."""
    path = os.path.join(work, "Kconfig")
    with open(path, "w", encoding="utf-8") as f:
        for name, lines in STAND_IN_KCONFIG.items():
            f.write(f'config {name}\n\tbool "{name}"\n' + "".join(f"\t{line}\n" for line in lines))
        f.write('source "$BR2_EXTERNAL_HOLDFAST_PATH/Config.in"\n')
    os.environ.update(BR2_EXTERNAL_HOLDFAST_PATH=tree, KCONFIG_WARN_UNDEF="y")
    config = kconfiglib.Kconfig(path, warn_to_stderr=False)
    values = {**dict.fromkeys(("BR2_USE_MMU", *REQUIRED, "BR2_PACKAGE_HOLDFAST"), 2), **changed}
    for name, value in values.items():
        config.syms[name].set_value(value)
    return config


def comments(config):
    """Those that menuconfig shows about holdfast."""
    return [node.prompt[0] for node in config.node_iter()
            if node.item is kconfiglib.COMMENT and kconfiglib.expr_value(node.prompt[1])
            and kconfiglib.expr_value(node.dep) and node.prompt[0].startswith("holdfast ")]


def kconfig_findings(tree, work):
    try:
        config = parse_kconfig(tree, work)
    except kconfiglib.KconfigError as error:
        yield f"Config.in: {error}"
        return
    variables, _ = make_variables(tree, work, TARGET_DIR="/")
    for name in ("holdfast", "nng", *variables["HOLDFAST_DEPENDENCIES"].split(),
                 *variables["NNG_DEPENDENCIES"].split()):
        symbol = config.syms.get("BR2_PACKAGE_" + name.upper().replace("-", "_"))
        if symbol is None or symbol.tri_value != 2:
            yield f"Config.in: {name} is needed and not chosen by BR2_PACKAGE_HOLDFAST"
    if comments(config):
        yield f"Config.in: shown although nothing is missing: {comments(config)}"
    yield from (f"Config.in: {line}" for line in config.warnings)
    for name, value in (*((n, 0) for n in REQUIRED), ("BR2_SHARED_LIBS", 2)):
        config = parse_kconfig(tree, work, **{name: value})
        if config.syms["BR2_PACKAGE_HOLDFAST"].visibility or len(comments(config)) != 1:
            yield f"Config.in: {name}={value} must hide holdfast and say why: {comments(config)}"
        yield from (f"Config.in, {name}={value}: {line}" for line in config.warnings)
    if len(comments(parse_kconfig(tree, work, BR2_PACKAGE_SQLITE_NO_SYNC=2))) != 1:
        yield "Config.in: nothing is said about a sqlite that does not sync"
    config = parse_kconfig(tree, work, BR2_USE_MMU=0)
    if config.syms["BR2_PACKAGE_HOLDFAST"].visibility or comments(config):
        yield "Config.in: without MMU there is no holdfast, and no comment about it"


def same_dependencies(recipe_text, tree, work):
    """Yocto and Buildroot name the same libraries."""
    buildroot_name = {"sqlite3": "sqlite", "libcereal": "cereal", "nlohmann-json": "json-for-modern-cpp"}
    recipe = Recipe(recipe_text, known_to_bitbake("/"))
    yocto = sorted(buildroot_name.get(name, name) for name in recipe.words("DEPENDS"))
    buildroot = sorted(make_variables(tree, work, TARGET_DIR="/")[0]["HOLDFAST_DEPENDENCIES"].split())
    if yocto != buildroot:
        yield f"Yocto depends on {yocto}, Buildroot on {buildroot}"


# -- Controls ----------------------------------------------------------------------------------------

# what is replaced, by what, and the finding it must give
RECIPE_SEEDS = [
    ("-DHOLDFAST_DEMO=OFF", "-DHOLDFAST_DEMOS=OFF", "does not know: ['HOLDFAST_DEMOS']"),
    ("/systemd/holdfast-gateway.service", "/systemd/holdfast-gatway.service", "do_install:append fails"),
    ('relay@.service holdfast-gateway.service"\nSYSTEMD_AUTO', 'relay@.service"\nSYSTEMD_AUTO',
     "SYSTEMD_SERVICE is"),
    ('relay@.service holdfast-gateway.service"\nSYSTEMD_AUTO',
     'relay@.service holdfast-gateways.service"\nSYSTEMD_AUTO', "SYSTEMD_SERVICE is"),
    ("/holdfast-gateway.service\"\nFILES", "/holdfast-gateways.service\"\nFILES",
     "holdfast-gateway.service is in no package"),
    ("${libdir}/libholdfast.a", "${libdir}/libholdfasts.a", "names /usr/lib/libholdfasts.a"),
    ("libholdfast.so.*", "libholdfast.so*", "/usr/lib/libholdfast.so is in libholdfast"),
    ("${sysconfdir}/holdfast $", "${sysconfdirs}/holdfast $", "'sysconfdirs' is not known"),
]
if shutil.which("ccache"):
    RECIPE_SEEDS.append((" -DCCACHE=OFF", "", "ccache is used"))
# file, and the same three; the last but one names the check
BUILDROOT_SEEDS = [
    ("holdfast/holdfast.mk", "-DHOLDFAST_TESTS", "-DHOLDFAST_TEST", makefile_findings, "['HOLDFAST_TEST']"),
    ("holdfast/holdfast.mk", "/systemd/holdfast-relay@", "/systemd/holdfast-relays@", makefile_findings,
     "HOLDFAST_INSTALL_INIT_SYSTEMD fails"),
    ("holdfast/holdfast.mk", "$(TARGET_DIR)/etc", "$(TARGETDIR)/etc", makefile_findings, "'TARGETDIR'"),
    ("holdfast/80-holdfast.preset", "disable holdfast-gateway.service\n", "", makefile_findings, "preset"),
    ("nng/nng.mk", "VERSION = 1.5.2", "VERSION = 1.5.3", makefile_findings, "nng.hash has"),
    ("holdfast/Config.in", "select BR2_PACKAGE_NNG", "select BR2_PACKAGE_NGN", kconfig_findings,
     "undefined symbol BR2_PACKAGE_NGN"),
    ("holdfast/Config.in", "\tselect BR2_PACKAGE_CLI11\n", "", kconfig_findings, "cli11 is needed"),
    ("holdfast/Config.in", "\tdepends on BR2_TOOLCHAIN_HAS_THREADS\n", "", kconfig_findings,
     "BR2_TOOLCHAIN_HAS_THREADS=0"),
    ("nng/Config.in", "\tselect", "\tselects", kconfig_findings, "Config.in:"),
]


if shutil.which("systemctl"):
    BUILDROOT_SEEDS.append(("holdfast/80-holdfast.preset", "holdfast-gateway", "holdfast-gatway",
                            makefile_findings, "preset-all enables ['holdfast-gateway.service']"))


def seeded(text, old, new):
    if old not in text:
        raise ValueError(f"control: there is no {old!r} to replace")
    return text.replace(old, new, 1)


def controls(work):
    for old, new, expected in RECIPE_SEEDS:
        found = list(recipe_findings(seeded(read(RECIPE), old, new), work))
        if not any(expected in line for line in found):
            yield f"control: {old!r} became {new!r}, and `{expected}` was not found, but {found}"
    for path, old, new, check, expected in BUILDROOT_SEEDS:
        with tempfile.TemporaryDirectory(dir=work) as copy:
            tree = os.path.join(copy, BUILDROOT)
            shutil.copytree(os.path.join(ROOT, BUILDROOT), tree)
            path = os.path.join(tree, "package", path)
            changed = seeded(read(path), old, new)
            with open(path, "w", encoding="utf-8") as f:
                f.write(changed)
            found = list(check(tree, work))
        if not any(expected in line for line in found):
            yield f"control: {path}: {old!r} became {new!r}, and `{expected}` was not found, but {found}"


def main():
    tree = os.path.join(ROOT, BUILDROOT)
    with tempfile.TemporaryDirectory() as work:
        found = list(recipe_findings(read(RECIPE), work))
        found += makefile_findings(tree, work)
        found += kconfig_findings(tree, work)
        found += same_dependencies(read(RECIPE), tree, work)
        found += controls(work) if not found else []
    for line in found:
        print(line)
    print(f"{len(RECIPE_SEEDS) + len(BUILDROOT_SEEDS)} seeded controls, {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
