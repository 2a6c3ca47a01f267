/* How many of the files that make up this process, the program and its shared libraries, have
   SQLite in them. It must be one: each further copy has its own list of locks, and closing a
   database in one drops the POSIX locks of the other (sqlite.org/howtocorrupt.html, 2.2.1). Needs
   _GNU_SOURCE. */
#ifndef HOLDFAST_TESTS_SQLITE_COPIES_H
#define HOLDFAST_TESTS_SQLITE_COPIES_H

#include <link.h>
#include <sqlite3.h>
#include <stddef.h>
#include <string.h>

static int sqlite_copies_count(struct dl_phdr_info* object, size_t size, void* count) {
  const char* const mark = sqlite3_sourceid(); /* each copy has this text, and nothing else does */
  int i;
  (void)size;
  for (i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)* const part = &object->dlpi_phdr[i];
    const void* const start = (const void*)(object->dlpi_addr + part->p_vaddr);
    if (part->p_type != PT_LOAD || (part->p_flags & PF_R) == 0) continue;
    if (memmem(start, part->p_filesz, mark, strlen(mark)) == NULL) continue;
    ++*(int*)count;
    break;
  }
  return 0;
}

static int sqlite_copies(void) {
  int count = 0;
  dl_iterate_phdr(sqlite_copies_count, &count);
  return count;
}

#endif
