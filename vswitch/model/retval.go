package model

import "strconv"

// Retval is one of VPP's API errors (src/vnet/error.h).
type Retval int32

// The errors of the model, with VPP's names.
const (
	Unspecified                 Retval = -1
	InvalidSwIfIndex            Retval = -2
	NoSuchFIB                   Retval = -3
	NoSuchEntry                 Retval = -6
	InvalidValue                Retval = -7
	InvalidValue2               Retval = -8
	Unimplemented               Retval = -9
	InvalidSwIfIndex2           Retval = -10
	SyscallError1               Retval = -11
	SyscallError2               Retval = -12
	SyscallError3               Retval = -13
	SyscallError4               Retval = -14
	FeatureDisabled             Retval = -30
	InvalidRegistration         Retval = -31
	NoPathsInRoute              Retval = -52
	NoMatchingInterface         Retval = -54
	InvalidVLAN                 Retval = -55
	VLANAlreadyExists           Retval = -56
	NoSuchNode                  Retval = -63
	InvalidSrcAddress           Retval = -57
	InvalidDstAddress           Retval = -58
	AddressLengthMismatch       Retval = -59
	AddressNotFoundForInterface Retval = -60
	AddressNotDeletable         Retval = -61
	IP6NotEnabled               Retval = -62
	SubifAlreadyExists          Retval = -68
	InvalidInterface            Retval = -71
	InvalidVLANTagCount         Retval = -72
	InvalidArgument             Retval = -73
	UnexpectedInterfaceState    Retval = -74
	TunnelExist                 Retval = -75
	InvalidDecapNext            Retval = -76
	IfAlreadyExists             Retval = -79
	ValueExist                  Retval = -81
	SameSrcDst                  Retval = -82
	InvalidAddressFamily        Retval = -97
	InvalidSubSwIfIndex         Retval = -98
	AddressInUse                Retval = -105
	AddressFoundForInterface    Retval = -114
	EntryAlreadyExists          Retval = -116
	BDAlreadyExists             Retval = -119
	BDInUse                     Retval = -120
	BDNotModifiable             Retval = -121
	BDIDExceedMax               Retval = -122
	Unsupported                 Retval = -126
	DuplicateIfAddress          Retval = -127
	ACLInUseInbound             Retval = -142
	ACLInUseOutbound            Retval = -143
	InstanceInUse               Retval = -147
	NonEthernet                 Retval = -151
	BDAlreadyHasBVI             Retval = -152
	FIBPathUnsupportedNextHop   Retval = -157
	InitFailed                  Retval = -144
	NetlinkError                Retval = -145
	LimitExceeded               Retval = -162
	InvalidPrefixLength         Retval = -171
)

// Error returns the number. Clients of the API have its name.
func (r Retval) Error() string { return "VPP API error " + strconv.Itoa(int(r)) }
