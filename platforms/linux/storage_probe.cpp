// What the kernel knows of the storage under a path: for `holdfast doctor`, which has to say
// whether this device can keep G2. Nothing here opens a database file.
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstring>
#include <initializer_list>

#include "paths.hpp"
#include "platform.hpp"
#include "small_file.hpp"

namespace holdfast::platform {
namespace {

constexpr std::size_t kMountTableBytesMax = 4 * 1024 * 1024;
constexpr int kOverlayDepthMax = 4;

// One line of /proc/self/mountinfo (proc(5)).
struct Mount {
  std::string device_number;  // "179:2"
  std::string mount_point;
  std::string options;
  std::string file_system;
  std::string source;
  std::string super_options;
};

bool starts_with(const std::string& text, const char* prefix) {
  return text.compare(0, std::strlen(prefix), prefix) == 0;
}

bool is_octal(char c) { return c >= '0' && c <= '7'; }

// Blanks, tabs, newlines and backslashes are written as \040 and so on.
std::string unescape(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && is_octal(text[i + 1]) && is_octal(text[i + 2]) &&
        is_octal(text[i + 3])) {
      out += static_cast<char>(((text[i + 1] - '0') << 6) | ((text[i + 2] - '0') << 3) |
                               (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> out;
  std::size_t at = 0;
  while (at <= text.size()) {
    std::size_t end = text.find(separator, at);
    if (end == std::string::npos) end = text.size();
    if (end > at) out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

bool parse_mount(const std::string& line, Mount& mount) {
  const std::vector<std::string> fields = split(line, ' ');
  std::size_t dash = 6;  // optional fields end with a lone "-"
  while (dash < fields.size() && fields[dash] != "-") ++dash;
  if (dash + 2 >= fields.size()) return false;
  mount.device_number = fields[2];
  mount.mount_point = unescape(fields[4]);
  mount.options = unescape(fields[5]);
  mount.file_system = unescape(fields[dash + 1]);
  mount.source = unescape(fields[dash + 2]);
  mount.super_options = dash + 3 < fields.size() ? unescape(fields[dash + 3]) : "";
  return true;
}

bool is_below(const std::string& path, const std::string& directory) {
  if (directory == "/") return true;
  return starts_with(path, directory.c_str()) &&
         (path.size() == directory.size() || path[directory.size()] == '/');
}

// The mount with the longest matching mount point; of equal ones the last, which hides the others.
bool find_mount(const std::string& path, Mount& found) {
  std::string table;
  if (!read_small_file("/proc/self/mountinfo", kMountTableBytesMax, table)) return false;
  bool any = false;
  for (const std::string& line : split(table, '\n')) {
    Mount mount;
    if (!parse_mount(line, mount) || !is_below(path, mount.mount_point)) continue;
    if (any && mount.mount_point.size() < found.mount_point.size()) continue;
    found = mount;
    any = true;
  }
  return any;
}

// The path itself, or its nearest ancestor that is there, without symbolic links.
std::string existing(const std::string& path) {
  std::string at = path.empty() ? "." : path;
  for (;;) {
    std::string real = resolved_path(at);
    if (!real.empty() || at == "/" || at == ".") return real;
    at = parent_directory(at);
  }
}

bool is_one_of(const std::string& text, std::initializer_list<const char*> list) {
  for (const char* entry : list) {
    if (text == entry) return true;
  }
  return false;
}

bool is_network(const std::string& fs) {
  return is_one_of(fs, {"nfs",
                        "nfs4",
                        "cifs",
                        "smb3",
                        "smbfs",
                        "9p",
                        "afs",
                        "ceph",
                        "coda",
                        "fuse.sshfs",
                        "fuse.glusterfs",
                        "fuse.ceph",
                        "fuse.s3fs",
                        "fuse.rclone",
                        "lustre",
                        "ocfs2",
                        "gfs2",
                        "ncpfs",
                        "virtiofs",
                        "vboxsf",
                        "prl_fs",
                        "fuse.vmhgfs-fuse"});
}

bool is_memory(const std::string& fs) {
  return is_one_of(fs, {"tmpfs", "ramfs", "devtmpfs", "rootfs", "hugetlbfs"});
}

// "upperdir=/x" from a list of options, "" if it is not there.
std::string option_value(const std::string& options, const char* name) {
  const std::string key = std::string(name) + "=";
  for (const std::string& option : split(options, ',')) {
    if (starts_with(option, key.c_str())) return option.substr(key.size());
  }
  return {};
}

bool has_option(const std::string& options, const char* name) {
  for (const std::string& option : split(options, ',')) {
    if (option == name) return true;
  }
  return false;
}

std::string device_number_of(const std::string& block_device) {
  struct stat info{};
  if (::stat(block_device.c_str(), &info) != 0 || !S_ISBLK(info.st_mode)) return {};
  return std::to_string(major(info.st_rdev)) + ":" + std::to_string(minor(info.st_rdev));
}

// The name from "DEVNAME=mmcblk0p2" in sysfs: /proc says only "/dev/root" for a root file system
// that was mounted by the kernel itself.
std::string device_name(const std::string& sys) {
  std::string text;
  if (!read_small_file(sys + "/uevent", 4096, text)) return {};
  for (const std::string& line : split(text, '\n')) {
    if (starts_with(line, "DEVNAME=")) return "/dev/" + line.substr(8);
  }
  return {};
}

void note_about_file_system(StorageFacts& facts) {
  const std::string& options = facts.mount_options;
  const std::string& fs = facts.file_system;
  if (has_option(options, "nobarrier") || has_option(options, "barrier=0") ||
      has_option(options, "fsync_mode=nobarrier")) {
    facts.dangers.push_back({"write barriers are off: a power cut can lose what was synced",
                             "remount with barriers (the default); take the option from fstab"});
  }
  if (has_option(options, "volatile") || has_option(options, "fsync=volatile")) {
    facts.dangers.push_back(
        {"overlay mounted volatile: syncs are left out", "mount the overlay without `volatile`"});
  }
  if (is_one_of(fs, {"vfat", "msdos", "exfat", "ext2"})) {
    facts.dangers.push_back({fs + " has no journal: a power cut can damage the whole file system",
                             "move the database to ext4 or f2fs"});
  }
  if (has_option(options, "data=writeback")) {
    facts.notes.push_back(
        "data=writeback: after a power cut files that were never synced may hold "
        "old blocks; a database is synced");
  }
  if (starts_with(fs, "fuse") && !facts.network) {
    facts.notes.push_back(fs + ": what its sync guarantees depends on the FUSE server");
  }
  if (fs == "btrfs") {
    facts.notes.push_back("btrfs: copy on write fragments databases; chattr +C helps on new files");
  }
  if (is_one_of(fs, {"ubifs", "jffs2"})) {
    facts.notes.push_back(fs + " on raw flash: there is no block device with a write cache");
  }
}

// A partition has no queue of its own: its disk, one directory up, has. Device mapper and md pass
// on the write cache of what lies below them.
std::string disk_of(const std::string& sys) {
  const bool partition = ::access((sys + "/partition").c_str(), F_OK) == 0;
  return partition ? parent_directory(sys) : sys;
}

void probe_block_device(const std::string& device_number, StorageFacts& facts) {
  const std::string sys = resolved_path("/sys/dev/block/" + device_number);
  if (sys.empty()) {
    facts.notes.push_back("the kernel tells nothing of block device " + device_number);
    return;
  }
  if (facts.device.empty() || facts.device == "/dev/root") facts.device = device_name(sys);
  const std::string disk = disk_of(sys);
  facts.write_cache = read_first_line(disk + "/queue/write_cache");
  if (facts.write_cache.empty()) facts.notes.push_back("the kernel does not tell the write cache");
  facts.model = read_first_line(disk + "/device/model");
  if (facts.model.empty()) facts.model = read_first_line(disk + "/device/name");  // SD and eMMC
  if (facts.model.empty()) facts.model = read_first_line(disk + "/dm/name");
  while (!facts.model.empty() && facts.model.back() == ' ') facts.model.pop_back();
  const std::string backing = read_first_line(disk + "/loop/backing_file");
  if (!backing.empty()) facts.notes.push_back("loop device on " + backing);
  const std::string name = disk.substr(disk.rfind('/') + 1);
  if (starts_with(name, "zram") || starts_with(name, "ram")) {
    facts.memory = true;
    facts.notes.push_back(name + " is memory");
  }
}

void probe_space(const std::string& path, StorageFacts& facts) {
  struct statvfs info{};
  if (::statvfs(path.c_str(), &info) != 0) {
    facts.notes.push_back("free space is unknown");
    return;
  }
  const auto unit = static_cast<std::int64_t>(info.f_frsize);
  facts.free_bytes = static_cast<std::int64_t>(info.f_bavail) * unit;
  facts.total_bytes = static_cast<std::int64_t>(info.f_blocks) * unit;
  // btrfs and some others make inodes as needed and say 0 of 0.
  if (info.f_files > 0) facts.free_inodes = static_cast<std::int64_t>(info.f_favail);
  facts.read_only = (info.f_flag & ST_RDONLY) != 0;
}

void probe_mount(const std::string& real, int overlay_depth, StorageFacts& facts);

// An overlay keeps what is written in its upper directory: that is the storage which counts.
void probe_overlay(const std::string& upper, int overlay_depth, StorageFacts& facts) {
  if (upper.empty()) {
    facts.notes.push_back("overlay: the kernel does not tell its upper directory");
    return;
  }
  const std::string real = resolved_path(upper);
  if (real.empty() || overlay_depth >= kOverlayDepthMax) {
    facts.notes.push_back("overlay on " + upper + ", which cannot be seen from here");
    return;
  }
  StorageFacts below;
  probe_mount(real, overlay_depth + 1, below);
  facts.notes.push_back("overlay: written to " + upper + " (" + below.file_system + ")");
  facts.memory = below.memory;
  facts.network = below.network;
  facts.device = below.device;
  facts.model = below.model;
  facts.write_cache = below.write_cache;
  facts.notes.insert(facts.notes.end(), below.notes.begin(), below.notes.end());
  facts.dangers.insert(facts.dangers.end(), below.dangers.begin(), below.dangers.end());
}

void probe_mount(const std::string& real, int overlay_depth, StorageFacts& facts) {
  Mount mount;
  if (!find_mount(real, mount)) {
    facts.notes.push_back("the mount table cannot be read");
    return;
  }
  facts.file_system = mount.file_system;
  facts.mount_point = mount.mount_point;
  facts.mount_options = mount.options;
  if (!mount.super_options.empty()) facts.mount_options += "," + mount.super_options;
  facts.network = is_network(mount.file_system);
  facts.memory = is_memory(mount.file_system);
  note_about_file_system(facts);
  if (mount.file_system == "overlay" || mount.file_system == "aufs") {
    probe_overlay(option_value(mount.super_options, "upperdir"), overlay_depth, facts);
    return;
  }
  if (facts.network || facts.memory) return;
  if (starts_with(mount.source, "/")) facts.device = mount.source;
  // btrfs and others with a device number of their own: ask the device that was mounted.
  std::string number = mount.device_number;
  if (starts_with(number, "0:")) number = device_number_of(mount.source);
  if (!number.empty()) {
    probe_block_device(number, facts);
  } else if (!is_one_of(facts.file_system, {"ubifs", "jffs2"})) {
    facts.notes.push_back("no block device is known for " + mount.source);
  }
}

}  // namespace

StorageFacts probe_storage(const std::string& path) {
  StorageFacts facts;
  const std::string real = existing(path);
  if (real.empty()) {
    facts.notes.push_back("no such path: " + path);
    return facts;
  }
  probe_mount(real, 0, facts);
  probe_space(real, facts);
  return facts;
}

}  // namespace holdfast::platform
