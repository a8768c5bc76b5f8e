package frame

import "encoding/binary"

// ICMPLen is the length of the common header of ICMP and ICMPv6 messages, with four bytes that depend on the type.
const ICMPLen = 8

// ICMP types and codes (RFC 792, RFC 1812).
const (
	ICMPEchoReply       = 0
	ICMPUnreachable     = 3
	ICMPEcho            = 8
	ICMPTimeExceeded    = 11
	ICMPParameter       = 12
	CodeNet             = 0
	CodeHost            = 1
	CodeProtocol        = 2
	CodePort            = 3
	CodeFragNeeded      = 4
	CodeAdminProhibited = 13
)

// ICMPv6 types and codes (RFC 4443, RFC 4861).
const (
	ICMP6Unreachable  = 1
	ICMP6TooBig       = 2
	ICMP6TimeExceeded = 3
	ICMP6Parameter    = 4
	ICMP6Echo         = 128
	ICMP6EchoReply    = 129
	ICMP6Solicit      = 135
	ICMP6Advert       = 136
	ICMP6Redirect     = 137
	Code6NoRoute      = 0
	Code6Prohibited   = 1
	Code6Address      = 3
	Code6Port         = 4
	Code6NextHeader   = 1 // of ICMP6Parameter
	icmp6FirstInfo    = 128
)

// ICMP is a view of an ICMP or ICMPv6 message.
type ICMP []byte

// ParseICMP checks the length.
func ParseICMP(b []byte) (ICMP, error) {
	if len(b) < ICMPLen {
		return nil, ErrShort
	}
	return ICMP(b), nil
}

// Type returns the message's type.
func (m ICMP) Type() uint8 { return m[0] }

// SetType sets type and code; PutChecksum must follow.
func (m ICMP) SetType(t, code uint8) {
	m[0] = t
	m[1] = code
}

// SetRest sets the four bytes that depend on the type.
func (m ICMP) SetRest(v uint32) { binary.BigEndian.PutUint32(m[4:], v) }

// PutChecksum writes the checksum. pseudo is zero for ICMP, and the sum of the pseudo header for ICMPv6.
func (m ICMP) PutChecksum(pseudo uint16) {
	m[2] = 0
	m[3] = 0
	binary.BigEndian.PutUint16(m[2:], ^Sum(m, pseudo))
}

// ChecksumValid verifies the checksum; pseudo as for PutChecksum.
func (m ICMP) ChecksumValid(pseudo uint16) bool { return Sum(m, pseudo) == 0xffff }

// IsICMPError reports whether a message of this type must not be answered with an ICMP error (RFC 1122 3.2.2).
func IsICMPError(t uint8) bool {
	switch t {
	case ICMPUnreachable, 4, 5, ICMPTimeExceeded, ICMPParameter:
		return true
	}
	return false
}

// IsICMP6Error is IsICMPError for ICMPv6 (RFC 4443 2.4 e): errors and redirects.
func IsICMP6Error(t uint8) bool { return t < icmp6FirstInfo || t == ICMP6Redirect }
