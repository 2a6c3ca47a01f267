// A wire between a device and a gateway that a test can cut at an exact message: it forwards TCP
// connections and looks at each message of NNG's stream before passing it on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace holdfast::test {

class TcpProxy {
 public:
  enum class Verdict {
    pass,
    twice,
    drop,  // swallowed; the connection lives on
    cut,   // swallowed, and the connection is closed
  };
  // `up`: from the device to the gateway. `kind`: of the Holdfast frame (wire::Kind). Called on a
  // thread of the proxy.
  using Judge = std::function<Verdict(bool up, int kind)>;

  TcpProxy();  // listens on a port of 127.0.0.1
  ~TcpProxy();
  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;

  std::string url() const;
  void set_backend(const std::string& url);  // tcp://127.0.0.1:port; for new connections
  void set_judge(Judge judge);               // empty: everything passes
  int messages(bool up) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast::test
