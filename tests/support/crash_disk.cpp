#include "support/crash_disk.hpp"

#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "db.hpp"

namespace holdfast::test {

using Kind = DiskOperation::Kind;
using Operation = std::shared_ptr<const DiskOperation>;

const char* kind_name(Kind kind) {
  constexpr const char* kNames[] = {"create", "remove",      "write", "truncate",
                                    "sync",   "sync_folder", "mark"};
  return kNames[static_cast<int>(kind)];
}

namespace {

constexpr std::size_t kSector = 512;

std::uint64_t mix(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

void write_at(std::string& file, std::size_t offset, const char* data, std::size_t size) {
  if (file.size() < offset + size) file.resize(offset + size);
  std::memcpy(&file[offset], data, size);
}

void apply_to(std::string& file, const DiskOperation& operation) {
  const auto offset = static_cast<std::size_t>(operation.offset);
  if (operation.kind == Kind::truncate)
    file.resize(offset);
  else
    write_at(file, offset, operation.data.data(), operation.data.size());
}

void apply_to(std::map<std::string, int>& names, const DiskOperation& operation) {
  if (operation.kind == Kind::create)
    names[operation.name] = operation.file;
  else
    names.erase(operation.name);
}

}  // namespace

std::uint64_t hash_bytes(std::uint64_t start, const void* data, std::size_t size) {
  const auto* const bytes = static_cast<const unsigned char*>(data);
  std::uint64_t hash = mix(start ^ size);
  std::size_t at = 0;
  for (; at + 8 <= size; at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + at, 8);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 29;
  }
  for (; at < size; ++at) hash = (hash ^ bytes[at]) * 0x100000001b3ULL;
  return hash;
}

std::uint64_t DiskImage::hash() const {
  std::uint64_t hash = 1;
  for (const auto& [name, bytes] : files) {
    hash = hash_bytes(hash, name.data(), name.size());
    hash = hash_bytes(hash, bytes.data(), bytes.size());
  }
  return hash;
}

// --- what a cut leaves ---------------------------------------------------------------------------

class DiskState::Chance {
 public:
  explicit Chance(std::uint64_t seed) : state_(mix(seed)) {}
  std::uint64_t next() { return mix(state_++); }
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(next() % n); }
  bool percent(int n) { return below(100) < static_cast<std::size_t>(n); }

 private:
  std::uint64_t state_;
};

DiskState::DiskState(const DiskImage& image) {
  for (const auto& [name, bytes] : image.files) {
    names_[name] = static_cast<int>(files_.size());
    files_.push_back({bytes, {}, name});
  }
}

void DiskState::apply(const Operation& operation) {
  if (operation->file >= static_cast<int>(files_.size()))
    files_.resize(static_cast<std::size_t>(operation->file) + 1);
  File* const file =
      operation->file < 0 ? nullptr : &files_[static_cast<std::size_t>(operation->file)];
  switch (operation->kind) {
    case Kind::write:
    case Kind::truncate:
      file->pending.push_back(operation);
      break;
    case Kind::sync:
      for (const Operation& each : file->pending) apply_to(file->synced, *each);
      file->pending.clear();
      break;
    case Kind::create:
      file->name = operation->name;
      names_pending_.push_back(operation);
      break;
    case Kind::remove: {
      std::string& stale = stale_[operation->name];
      stale = file->synced;
      for (const Operation& each : file->pending) apply_to(stale, *each);
      names_pending_.push_back(operation);
      break;
    }
    case Kind::sync_folder:
      for (const Operation& each : names_pending_) apply_to(names_, *each);
      names_pending_.clear();
      break;
    case Kind::mark:
      break;
  }
}

bool DiskState::anything_unsynced() const {
  return !names_pending_.empty() || std::any_of(files_.begin(), files_.end(), [](const File& file) {
    return !file.pending.empty();
  });
}

// Writes reached the medium in order, and the last one only in part.
static std::string torn(std::string bytes, const std::vector<Operation>& pending, std::size_t whole,
                        std::size_t sectors) {
  for (std::size_t i = 0; i < whole; ++i) apply_to(bytes, *pending[i]);
  if (whole == pending.size() || pending[whole]->kind != Kind::write) return bytes;
  const DiskOperation& last = *pending[whole];
  const auto offset = static_cast<std::size_t>(last.offset);
  const std::size_t end =
      std::min((offset / kSector + sectors) * kSector, offset + last.data.size());
  if (end > offset) write_at(bytes, offset, last.data.data(), end - offset);
  return bytes;
}

// Every sector for itself holds what it was at some moment since the last sync.
std::string DiskState::sectors(const File& file, const std::string& stale, Chance& chance) {
  const std::size_t count = file.pending.size();
  std::vector<std::size_t> sizes = {file.synced.size()};
  for (const Operation& each : file.pending) {
    const auto offset = static_cast<std::size_t>(each->offset);
    sizes.push_back(
        each->kind == Kind::truncate ? offset : std::max(sizes.back(), offset + each->data.size()));
  }
  const std::size_t most = *std::max_element(sizes.begin(), sizes.end());
  // How likely a sector is the newest. 0 and 100: but for a single one.
  constexpr int kNewest[] = {0, 10, 50, 90, 100};
  const int newest = kNewest[chance.below(5)];
  const std::size_t size =
      chance.percent(newest) ? sizes.back() : sizes[chance.below(sizes.size())];
  const bool garbage = chance.percent(40);
  std::vector<std::size_t> seen(most / kSector + 1);  // operations that reached this sector
  for (std::size_t& each : seen)
    each = chance.percent(newest)              ? count
           : newest == 0 || chance.percent(50) ? 0
                                               : chance.below(count + 1);
  if (newest == 0 || newest == 100) {
    const Operation& one = file.pending[chance.below(count)];
    const std::size_t at = static_cast<std::size_t>(one->offset) +
                           (one->data.empty() ? 0 : chance.below(one->data.size()));
    if (at / kSector < seen.size())
      seen[at / kSector] = newest == 0 ? count : chance.below(count + 1);
  }
  std::string bytes = file.synced;
  bytes.resize(std::max(most, bytes.size()));
  if (garbage) {  // where the file had grown: another file's old blocks
    for (std::size_t at = file.synced.size(); at < bytes.size(); ++at)
      bytes[at] = at < stale.size() ? stale[at] : static_cast<char>(mix(at / 8) >> (at % 8 * 8));
  }
  for (std::size_t i = 0; i < count; ++i) {
    const DiskOperation& each = *file.pending[i];
    const auto first = static_cast<std::size_t>(each.offset);
    for (std::size_t at = first; each.kind == Kind::write && at < first + each.data.size();) {
      const std::size_t end = std::min((at / kSector + 1) * kSector, first + each.data.size());
      if (i < seen[at / kSector])
        std::memcpy(&bytes[at], each.data.data() + (at - first), end - at);
      at = end;
    }
  }
  bytes.resize(size);
  return bytes;
}

std::string DiskState::contents(const File& file, const std::string& stale, Chance& chance) {
  if (file.pending.empty()) return file.synced;
  const std::size_t count = file.pending.size();
  switch (chance.below(8)) {
    case 0:
      return file.synced;
    case 1:
      return torn(file.synced, file.pending, count, 0);
    case 2:
    case 3:
      return torn(file.synced, file.pending, chance.below(count + 1), chance.below(10));
    default:
      return sectors(file, stale, chance);
  }
}

DiskImage DiskState::image(std::uint64_t variant) const {
  Chance chance(variant);
  auto names = names_;
  const bool between = variant > kEverything;
  const bool in_order = !between || chance.percent(70);
  std::size_t count = variant == kNothing ? 0 : names_pending_.size();
  if (between) count = chance.below(count + 1);
  for (std::size_t i = 0; i < names_pending_.size(); ++i)
    if (in_order ? i < count : chance.percent(50)) apply_to(names, *names_pending_[i]);
  static const std::string kNone;
  DiskImage image;
  for (const auto& [name, index] : names) {
    const File& file = files_[static_cast<std::size_t>(index)];
    const auto stale = stale_.find(name);
    std::string& bytes = image.files[name];
    if (variant == kNothing)
      bytes = file.synced;
    else if (variant == kEverything)
      bytes = torn(file.synced, file.pending, file.pending.size(), 0);
    else
      bytes = contents(file, stale == stale_.end() ? kNone : stale->second, chance);
  }
  return image;
}

// --- the device ----------------------------------------------------------------------------------

namespace {

constexpr int kLocks = SQLITE_SHM_NLOCK;
constexpr const char* kRoot = "/crash-disk/";

struct OpenFile;

struct DeviceFile {
  int number = 0;
  std::string bytes;
  int shared = 0;
  const OpenFile *reserved = nullptr, *pending = nullptr, *exclusive = nullptr;
  std::vector<std::unique_ptr<char[]>> memory;  // -shm
  int memory_users = 0;
  std::array<int, kLocks> memory_shared{};
  std::array<const OpenFile*, kLocks> memory_exclusive{};
};

}  // namespace

struct CrashDisk::Device {
  std::map<std::string, std::shared_ptr<DeviceFile>> names;
  int files = 0;
  DiskState state;
  DiskLog* log = nullptr;
  std::int64_t operations = 0;
  std::int64_t fault_at = -1;
  DiskFault fault = DiskFault::io_error;
  bool for_good = false, met = false, off = false;
  bool powersafe = true;

  explicit Device(const DiskImage& image) : state(image) {
    for (const auto& [name, bytes] : image.files) {
      auto file = std::make_shared<DeviceFile>();
      file->number = files++;
      file->bytes = bytes;
      names[name] = std::move(file);
    }
  }

  void did(DiskOperation operation) {
    const auto shared = std::make_shared<const DiskOperation>(std::move(operation));
    state.apply(shared);
    if (log != nullptr) log->push_back(shared);
  }

  enum class Does { read, open, create, write, change, sync };
  // Counts the operation; true, and what `fault` says, if it must fail.
  bool fails(Does does) {
    const std::int64_t now = operations++;
    if (off) return true;
    const bool due = fault_at >= 0 && (now == fault_at || (for_good && now > fault_at));
    if (!due || !concerns(does)) return false;
    met = true;
    if (fault == DiskFault::power_off) off = true;
    return true;
  }

 private:
  bool concerns(Does does) const {
    switch (fault) {
      case DiskFault::io_error:
      case DiskFault::power_off:
        return true;
      case DiskFault::no_space:
        return does == Does::write || does == Does::create;
      case DiskFault::short_write:
        return does == Does::write;
      case DiskFault::read_only:
        return does == Does::write || does == Does::create || does == Does::change;
    }
    return false;
  }
};

namespace {

using Device = CrashDisk::Device;
using Does = Device::Does;

std::map<std::string, std::shared_ptr<Device>>& mounts() {  // by folder
  static std::map<std::string, std::shared_ptr<Device>> all;
  return all;
}

std::uint64_t random_state = 1;
std::int64_t wall_now_ms = 1'767'225'600'000;  // 2026-01-01

// Splits "/crash-disk/7/app.db". False: not on a disk of ours.
bool locate(const char* path, std::shared_ptr<Device>& device, std::string& name) {
  if (path == nullptr || std::strncmp(path, kRoot, std::strlen(kRoot)) != 0) return false;
  const char* const slash = std::strrchr(path, '/');
  const auto found = mounts().find(std::string(path, slash + 1));
  if (found == mounts().end()) return false;
  device = found->second;
  name = slash + 1;
  return true;
}

struct Handle {  // what SQLite's plain structure cannot hold
  std::shared_ptr<Device> device;
  std::shared_ptr<DeviceFile> file;
  std::string name;
  int lock = SQLITE_LOCK_NONE;
  bool sync_folder = false;  // at the first sync of a new journal, as SQLite does on Linux
  bool delete_on_close = false;
  bool maps_memory = false;
  unsigned shared_locks = 0;
};

struct OpenFile {
  sqlite3_file base;
  Handle* handle;
};

OpenFile& open_file(sqlite3_file* file) { return *reinterpret_cast<OpenFile*>(file); }
Handle& handle_of(sqlite3_file* file) { return *open_file(file).handle; }

void remove_name(Device& device, const std::string& name) {
  const auto found = device.names.find(name);
  if (found == device.names.end()) return;
  device.did({Kind::remove, found->second->number, 0, name, {}});
  device.names.erase(found);
}

int file_unlock(sqlite3_file* file, int level) {
  Handle& handle = handle_of(file);
  DeviceFile& on = *handle.file;
  const OpenFile* const self = &open_file(file);
  if (handle.lock <= level) return SQLITE_OK;
  for (const OpenFile** owner : {&on.reserved, &on.pending, &on.exclusive})
    if (*owner == self) *owner = nullptr;
  if (level == SQLITE_LOCK_NONE) --on.shared;
  handle.lock = level;
  return SQLITE_OK;
}

int memory_unmap(sqlite3_file* file, int) {
  Handle& handle = handle_of(file);
  if (!handle.maps_memory) return SQLITE_OK;
  DeviceFile& on = *handle.file;
  for (std::size_t i = 0; i < kLocks; ++i) {
    if (on.memory_exclusive[i] == &open_file(file)) on.memory_exclusive[i] = nullptr;
    if ((handle.shared_locks >> i & 1U) != 0) --on.memory_shared[i];
  }
  handle.shared_locks = 0;
  handle.maps_memory = false;
  if (--on.memory_users == 0) on.memory.clear();  // the next one recovers, as on Linux
  return SQLITE_OK;
}

int file_close(sqlite3_file* file) {
  file_unlock(file, SQLITE_LOCK_NONE);
  memory_unmap(file, 0);
  Handle* const handle = open_file(file).handle;
  if (handle->delete_on_close && !handle->device->off) remove_name(*handle->device, handle->name);
  delete handle;
  open_file(file).handle = nullptr;
  return SQLITE_OK;
}

int file_read(sqlite3_file* file, void* buffer, int amount, sqlite3_int64 offset) {
  Handle& handle = handle_of(file);
  if (handle.device->fails(Does::read)) return SQLITE_IOERR_READ;
  const std::string& bytes = handle.file->bytes;
  const auto at = static_cast<std::size_t>(offset), wanted = static_cast<std::size_t>(amount);
  const std::size_t there = at < bytes.size() ? std::min(bytes.size() - at, wanted) : 0;
  if (there > 0) std::memcpy(buffer, bytes.data() + at, there);
  if (there == wanted) return SQLITE_OK;
  std::memset(static_cast<char*>(buffer) + there, 0, wanted - there);
  return SQLITE_IOERR_SHORT_READ;
}

void write_now(Handle& handle, const char* data, std::size_t size, sqlite3_int64 offset) {
  if (size == 0) return;
  write_at(handle.file->bytes, static_cast<std::size_t>(offset), data, size);
  handle.device->did({Kind::write, handle.file->number, offset, {}, std::string(data, size)});
}

int file_write(sqlite3_file* file, const void* buffer, int amount, sqlite3_int64 offset) {
  Handle& handle = handle_of(file);
  const auto* const data = static_cast<const char*>(buffer);
  const auto size = static_cast<std::size_t>(amount);
  if (!handle.device->fails(Does::write)) {
    write_now(handle, data, size, offset);
    return SQLITE_OK;
  }
  if (handle.device->off) return SQLITE_IOERR_WRITE;
  const DiskFault fault = handle.device->fault;
  if (fault == DiskFault::short_write || fault == DiskFault::no_space)
    write_now(handle, data, size / 2, offset);
  return fault == DiskFault::no_space ? SQLITE_FULL : SQLITE_IOERR_WRITE;
}

int file_truncate(sqlite3_file* file, sqlite3_int64 size) {
  Handle& handle = handle_of(file);
  if (handle.device->fails(Does::change)) return SQLITE_IOERR_TRUNCATE;
  handle.file->bytes.resize(static_cast<std::size_t>(size));
  handle.device->did({Kind::truncate, handle.file->number, size, {}, {}});
  return SQLITE_OK;
}

int folder_sync(Device& device) {
  if (device.fails(Does::sync)) return SQLITE_IOERR_DIR_FSYNC;
  device.did({Kind::sync_folder, -1, 0, {}, {}});
  return SQLITE_OK;
}

int file_sync(sqlite3_file* file, int) {
  Handle& handle = handle_of(file);
  if (handle.device->fails(Does::sync)) return SQLITE_IOERR_FSYNC;
  handle.device->did({Kind::sync, handle.file->number, 0, {}, {}});
  if (!handle.sync_folder) return SQLITE_OK;
  handle.sync_folder = false;
  return folder_sync(*handle.device);
}

int file_size(sqlite3_file* file, sqlite3_int64* size) {
  Handle& handle = handle_of(file);
  if (handle.device->off) return SQLITE_IOERR_FSTAT;
  *size = static_cast<sqlite3_int64>(handle.file->bytes.size());
  return SQLITE_OK;
}

int lock_exclusive(DeviceFile& on, Handle& handle, const OpenFile* self) {
  if (on.pending != nullptr && on.pending != self) return SQLITE_BUSY;
  on.pending = self;
  handle.lock = SQLITE_LOCK_PENDING;
  if (on.shared > 1) return SQLITE_BUSY;
  on.exclusive = self;
  handle.lock = SQLITE_LOCK_EXCLUSIVE;
  return SQLITE_OK;
}

int file_lock(sqlite3_file* file, int level) {
  Handle& handle = handle_of(file);
  DeviceFile& on = *handle.file;
  const OpenFile* const self = &open_file(file);
  if (handle.device->off) return SQLITE_IOERR_LOCK;
  if (handle.lock >= level) return SQLITE_OK;
  if (handle.lock == SQLITE_LOCK_NONE) {
    if (on.pending != nullptr || on.exclusive != nullptr) return SQLITE_BUSY;
    ++on.shared;
    handle.lock = SQLITE_LOCK_SHARED;
  }
  if (level == SQLITE_LOCK_SHARED) return SQLITE_OK;
  if (on.reserved != nullptr && on.reserved != self) return SQLITE_BUSY;
  if (level == SQLITE_LOCK_EXCLUSIVE) return lock_exclusive(on, handle, self);
  on.reserved = self;
  handle.lock = SQLITE_LOCK_RESERVED;
  return SQLITE_OK;
}

int file_check_reserved(sqlite3_file* file, int* result) {
  const DeviceFile& on = *handle_of(file).file;
  *result = on.reserved != nullptr || on.pending != nullptr || on.exclusive != nullptr ? 1 : 0;
  return SQLITE_OK;
}

int file_control(sqlite3_file* file, int what, void* argument) {
  Handle& handle = handle_of(file);
  if (what == kSyncFolderControl) return folder_sync(*handle.device);
  if (what == SQLITE_FCNTL_POWERSAFE_OVERWRITE) {
    *static_cast<int*>(argument) = handle.device->powersafe ? 1 : 0;
    return SQLITE_OK;
  }
  return SQLITE_NOTFOUND;
}

int file_sector_size(sqlite3_file*) { return 4096; }

int file_characteristics(sqlite3_file* file) {
  return handle_of(file).device->powersafe ? SQLITE_IOCAP_POWERSAFE_OVERWRITE : 0;
}

int memory_map(sqlite3_file* file, int region, int size, int extend, void volatile** out) {
  Handle& handle = handle_of(file);
  *out = nullptr;
  if (handle.device->off) return SQLITE_IOERR_SHMMAP;
  DeviceFile& on = *handle.file;
  if (!handle.maps_memory) {
    handle.maps_memory = true;
    ++on.memory_users;
  }
  while (static_cast<int>(on.memory.size()) <= region) {
    if (extend == 0) return SQLITE_OK;
    on.memory.emplace_back(new char[static_cast<std::size_t>(size)]());
  }
  *out = on.memory[static_cast<std::size_t>(region)].get();
  return SQLITE_OK;
}

bool memory_lock_free(const DeviceFile& on, const Handle& handle, const OpenFile* self,
                      std::size_t slot, bool exclusive) {
  const OpenFile* const owner = on.memory_exclusive[slot];
  if (owner != nullptr && owner != self) return false;
  const int mine = static_cast<int>(handle.shared_locks >> slot & 1U);
  return !exclusive || on.memory_shared[slot] == mine;
}

int memory_lock(sqlite3_file* file, int offset, int count, int flags) {
  Handle& handle = handle_of(file);
  if (handle.device->off && (flags & SQLITE_SHM_UNLOCK) == 0) return SQLITE_IOERR_SHMLOCK;
  DeviceFile& on = *handle.file;
  const OpenFile* const self = &open_file(file);
  const bool exclusive = (flags & SQLITE_SHM_EXCLUSIVE) != 0;
  const auto first = static_cast<std::size_t>(offset),
             end = first + static_cast<std::size_t>(count);
  if ((flags & SQLITE_SHM_LOCK) != 0) {
    for (std::size_t slot = first; slot < end; ++slot)
      if (!memory_lock_free(on, handle, self, slot, exclusive)) return SQLITE_BUSY;
  }
  for (std::size_t slot = first; slot < end; ++slot) {
    const unsigned bit = 1U << slot;
    const bool had = (handle.shared_locks & bit) != 0;
    if ((flags & SQLITE_SHM_LOCK) != 0 && exclusive) {
      on.memory_exclusive[slot] = self;
    } else if ((flags & SQLITE_SHM_LOCK) != 0) {
      if (!had) ++on.memory_shared[slot];
      handle.shared_locks |= bit;
    } else {
      if (on.memory_exclusive[slot] == self) on.memory_exclusive[slot] = nullptr;
      if (had) --on.memory_shared[slot];
      handle.shared_locks &= ~bit;
    }
  }
  return SQLITE_OK;
}

void memory_barrier(sqlite3_file*) {}

const sqlite3_io_methods kMethods = {2,
                                     file_close,
                                     file_read,
                                     file_write,
                                     file_truncate,
                                     file_sync,
                                     file_size,
                                     file_lock,
                                     file_unlock,
                                     file_check_reserved,
                                     file_control,
                                     file_sector_size,
                                     file_characteristics,
                                     memory_map,
                                     memory_lock,
                                     memory_barrier,
                                     memory_unmap,
                                     nullptr,
                                     nullptr};

// --- the VFS -------------------------------------------------------------------------------------

sqlite3_vfs* system_vfs = nullptr;

int vfs_open(sqlite3_vfs*, const char* path, sqlite3_file* file, int flags, int* out_flags) {
  std::shared_ptr<Device> device;
  std::string name;
  if (!locate(path, device, name))
    return system_vfs->xOpen(system_vfs, path, file, flags, out_flags);
  file->pMethods = nullptr;
  const auto found = device->names.find(name);
  const bool is_new = found == device->names.end();
  const bool creates = is_new && (flags & SQLITE_OPEN_CREATE) != 0;
  if (device->fails(creates ? Does::create : Does::open)) return SQLITE_CANTOPEN;
  if (is_new && !creates) return SQLITE_CANTOPEN;
  std::shared_ptr<DeviceFile> content;
  if (is_new) {
    content = std::make_shared<DeviceFile>();
    content->number = device->files++;
    device->names[name] = content;
    device->did({Kind::create, content->number, 0, name, {}});
  } else {
    content = found->second;
  }
  constexpr int kJournals = SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_SUPER_JOURNAL | SQLITE_OPEN_WAL;
  auto* const handle = new Handle;
  handle->device = device;
  handle->file = content;
  handle->name = name;
  handle->sync_folder = (flags & SQLITE_OPEN_CREATE) != 0 && (flags & kJournals) != 0;
  handle->delete_on_close = (flags & SQLITE_OPEN_DELETEONCLOSE) != 0;
  open_file(file).handle = handle;
  file->pMethods = &kMethods;
  if (out_flags != nullptr) *out_flags = flags;
  return SQLITE_OK;
}

int vfs_delete(sqlite3_vfs*, const char* path, int sync_folder) {
  std::shared_ptr<Device> device;
  std::string name;
  if (!locate(path, device, name)) return system_vfs->xDelete(system_vfs, path, sync_folder);
  if (device->fails(Does::change)) return SQLITE_IOERR_DELETE;
  if (device->names.count(name) == 0) return SQLITE_IOERR_DELETE_NOENT;
  remove_name(*device, name);
  return (sync_folder & 1) != 0 ? folder_sync(*device) : SQLITE_OK;
}

int vfs_access(sqlite3_vfs*, const char* path, int flags, int* result) {
  std::shared_ptr<Device> device;
  std::string name;
  if (!locate(path, device, name)) return system_vfs->xAccess(system_vfs, path, flags, result);
  if (device->off) return SQLITE_IOERR_ACCESS;
  const auto found = device->names.find(name);
  // As on Linux: an empty file does not "exist", or an empty journal would look hot.
  *result = found != device->names.end() &&
                    (flags != SQLITE_ACCESS_EXISTS || !found->second->bytes.empty())
                ? 1
                : 0;
  return SQLITE_OK;
}

int vfs_full_path(sqlite3_vfs*, const char* path, int size, char* out) {
  if (std::strncmp(path, kRoot, std::strlen(kRoot)) != 0)
    return system_vfs->xFullPathname(system_vfs, path, size, out);
  sqlite3_snprintf(size, out, "%s", path);
  return SQLITE_OK;
}

int vfs_randomness(sqlite3_vfs*, int size, char* out) {
  for (int i = 0; i < size; ++i) out[i] = static_cast<char>(mix(random_state++));
  return size;
}

int vfs_sleep(sqlite3_vfs*, int us) { return system_vfs->xSleep(system_vfs, us); }

int vfs_time(sqlite3_vfs*, double* days) {
  *days = 2440587.5 + static_cast<double>(wall_now_ms) / 86'400'000.0;
  return SQLITE_OK;
}

int vfs_last_error(sqlite3_vfs*, int, char*) { return 0; }

void install_vfs() {
  if (system_vfs != nullptr) return;
  system_vfs = sqlite3_vfs_find(nullptr);
  static sqlite3_vfs vfs = {};
  vfs.iVersion = 1;
  vfs.szOsFile = std::max(static_cast<int>(sizeof(OpenFile)), system_vfs->szOsFile);
  vfs.mxPathname = system_vfs->mxPathname;
  vfs.zName = "crash-disk";
  vfs.xOpen = vfs_open;
  vfs.xDelete = vfs_delete;
  vfs.xAccess = vfs_access;
  vfs.xFullPathname = vfs_full_path;
  vfs.xRandomness = vfs_randomness;
  vfs.xSleep = vfs_sleep;
  vfs.xCurrentTime = vfs_time;
  vfs.xGetLastError = vfs_last_error;
  sqlite3_vfs_register(&vfs, 1);
}

}  // namespace

// --- CrashDisk -----------------------------------------------------------------------------------

CrashDisk::CrashDisk(const DiskImage& image) : device_(std::make_shared<Device>(image)) {
  static int disks = 0;
  install_vfs();
  folder_ = kRoot + std::to_string(++disks) + "/";
  mounts()[folder_] = device_;
}

CrashDisk::~CrashDisk() {
  device_->off = true;
  mounts().erase(folder_);
}

std::string CrashDisk::path(const std::string& name) const { return folder_ + name; }

std::int64_t CrashDisk::operations() const { return device_->operations; }

void CrashDisk::fault_at(std::int64_t operation, DiskFault fault, bool for_good) {
  device_->fault_at = operation;
  device_->fault = fault;
  device_->for_good = for_good;
  device_->met = false;
}

void CrashDisk::no_fault() { device_->fault_at = -1; }

bool CrashDisk::fault_met() const { return device_->met; }

void CrashDisk::power_off() { device_->off = true; }

void CrashDisk::reboot(std::uint64_t variant) {
  auto next = std::make_shared<Device>(image(variant));
  next->powersafe = device_->powersafe;
  device_->off = true;
  device_->log = nullptr;
  device_ = std::move(next);
  mounts()[folder_] = device_;
}

DiskImage CrashDisk::image(std::uint64_t variant) const { return device_->state.image(variant); }

void CrashDisk::record(DiskLog* log) { device_->log = log; }

void CrashDisk::mark(const std::string& text, std::int64_t number) {
  device_->did({Kind::mark, -1, number, text, {}});
}

void CrashDisk::set_powersafe_overwrite(bool promised) { device_->powersafe = promised; }

void CrashDisk::seed_sqlite(std::uint64_t seed) {
  install_vfs();
  random_state = mix(seed);
  sqlite3_randomness(0, nullptr);
}

void CrashDisk::set_sqlite_wall_ms(std::int64_t wall_ms) { wall_now_ms = wall_ms; }

}  // namespace holdfast::test
