// A block device that remembers: holdfast_block_log IMAGE LOG MOUNTPOINT mounts (FUSE) two files.
//   disk   IMAGE, to put under a loop device; every write and flush is appended to LOG in order
//   ack    each write is appended to LOG in the same order: what the program under test promised
//
// LOG holds records: u32 kind (1 write, 2 flush, 3 ack), u32 bytes, u64 offset, then the bytes; in
// the machine's own byte order. Single-threaded, so the order is the order the kernel sent them in.
#define FUSE_USE_VERSION 31
#include <fcntl.h>
#include <fuse3/fuse.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>

namespace {

constexpr std::string_view kDisk = "/disk", kAck = "/ack";
enum class Kind : std::uint32_t { write = 1, flush = 2, ack = 3 };
struct Header {
  Kind kind;
  std::uint32_t bytes;
  std::uint64_t offset;
};

int image_fd = -1;
int log_fd = -1;
off_t image_bytes = 0;

// A record that is not logged must not have happened.
bool append(Kind kind, const char* data, std::size_t bytes, off_t offset) {
  const Header header{kind, static_cast<std::uint32_t>(bytes), static_cast<std::uint64_t>(offset)};
  return write(log_fd, &header, sizeof header) == static_cast<ssize_t>(sizeof header) &&
         (bytes == 0 || write(log_fd, data, bytes) == static_cast<ssize_t>(bytes));
}

int get_attributes(const char* path, struct stat* out, fuse_file_info*) {
  *out = {};
  out->st_nlink = 1;
  out->st_mode = S_IFREG | 0600;
  if (path == kDisk) {
    out->st_size = image_bytes;
  } else if (std::string_view(path) == "/") {
    out->st_mode = S_IFDIR | 0700;
  } else if (path != kAck) {
    return -ENOENT;
  }
  return 0;
}

int open_file(const char*, fuse_file_info* info) {
  info->direct_io = 1;  // no page cache between the loop device and the log
  return 0;
}

int read_file(const char* path, char* out, std::size_t bytes, off_t offset, fuse_file_info*) {
  if (path != kDisk) return 0;
  const ssize_t got = pread(image_fd, out, bytes, offset);
  return got < 0 ? -errno : static_cast<int>(got);
}

int write_file(const char* path, const char* data, std::size_t bytes, off_t offset,
               fuse_file_info*) {
  const bool disk = path == kDisk;
  if (!append(disk ? Kind::write : Kind::ack, data, bytes, disk ? offset : 0)) return -EIO;
  if (disk && pwrite(image_fd, data, bytes, offset) != static_cast<ssize_t>(bytes)) return -EIO;
  return static_cast<int>(bytes);
}

int sync_file(const char* path, int, fuse_file_info*) {
  return path != kDisk || append(Kind::flush, nullptr, 0, 0) ? 0 : -EIO;
}

int truncate_file(const char*, off_t, fuse_file_info*) { return 0; }  // open("ack", O_TRUNC)

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: holdfast_block_log IMAGE LOG MOUNTPOINT\n");
    return 2;
  }
  image_fd = open(argv[1], O_RDWR | O_CLOEXEC);
  log_fd = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  struct stat info = {};
  if (image_fd < 0 || log_fd < 0 || fstat(image_fd, &info) != 0) {
    std::perror("holdfast_block_log");
    return 1;
  }
  image_bytes = info.st_size;
  fuse_operations operations = {};
  operations.getattr = get_attributes;
  operations.open = open_file;
  operations.read = read_file;
  operations.write = write_file;
  operations.fsync = sync_file;
  operations.truncate = truncate_file;
  char foreground[] = "-f", single[] = "-s";
  char* arguments[] = {argv[0], foreground, single, argv[3], nullptr};
  return fuse_main(4, arguments, &operations, nullptr);
}
