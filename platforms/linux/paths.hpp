// Names of files and directories.
#pragma once

#include <string>

namespace holdfast::platform {

// Without symbolic links, "." and ".."; "" if there is no such file. Opens nothing.
std::string resolved_path(const std::string& path);
// "/a" of "/a/b", "/" of "/b", "." of "b".
std::string parent_directory(const std::string& path);

}  // namespace holdfast::platform
