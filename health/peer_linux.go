package health

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// peerUser asks the kernel which user owns the socket at the other end of a loopback connection, with sock_diag(7), as
// ss -e does. A socket has no owner once its process has closed it.
func peerUser(peer, own netip.AddrPort) (uid int, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, fmt.Errorf("open a sock_diag socket: %w", err)
	}
	defer unix.Close(fd) //nolint:errcheck // it is done with
	if err := unix.Send(fd, diagRequest(peer, own), 0); err != nil {
		return 0, fmt.Errorf("ask sock_diag: %w", err)
	}
	var answer [4 << 10]byte // the kernel has written it when Send returns
	n, _, err := unix.Recvfrom(fd, answer[:], unix.MSG_DONTWAIT)
	if err != nil {
		return 0, fmt.Errorf("sock_diag's answer: %w", err)
	}
	const message, user, inode, end = unix.SizeofNlMsghdr, 64, 68, 72 // struct inet_diag_msg
	if n < message+end || binary.NativeEndian.Uint16(answer[4:]) != unix.SOCK_DIAG_BY_FAMILY {
		return 0, errors.New("sock_diag knows no such socket")
	}
	body := answer[message:n]
	if binary.NativeEndian.Uint32(body[inode:]) == 0 {
		return 0, errors.New("its process has closed the connection")
	}
	return int(binary.NativeEndian.Uint32(body[user:])), nil
}

// diagRequest is a nlmsghdr with an inet_diag_req_v2.
func diagRequest(source, destination netip.AddrPort) []byte {
	family, from, to := byte(unix.AF_INET6), source.Addr().AsSlice(), destination.Addr().AsSlice()
	if source.Addr().Is4() {
		family = unix.AF_INET
		from, to = append(from, make([]byte, 12)...), append(to, make([]byte, 12)...)
	}
	const allStates, anyInterface, noCookie = ^uint32(0), 0, ^uint64(0)
	body := []byte{family, unix.IPPROTO_TCP, 0, 0}
	body = binary.NativeEndian.AppendUint32(body, allStates)
	body = binary.BigEndian.AppendUint16(body, source.Port())
	body = binary.BigEndian.AppendUint16(body, destination.Port())
	body = slices.Concat(body, from, to)
	body = binary.NativeEndian.AppendUint32(body, anyInterface)
	body = binary.NativeEndian.AppendUint64(body, noCookie)
	header := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	header = binary.NativeEndian.AppendUint16(header, unix.SOCK_DIAG_BY_FAMILY)
	header = binary.NativeEndian.AppendUint16(header, unix.NLM_F_REQUEST)
	return append(append(header, make([]byte, 8)...), body...) // no sequence number, no port
}
