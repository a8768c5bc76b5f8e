package pod

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/weftnet/weft/internal/jsonempty"
)

// Limits are the limits of the packets of one interface, which the dataplane enforces; the zero value limits no packet.
// As in Kubernetes ingress is to the pod, and egress from the pod.
type Limits struct {
	Ingress Rate `json:"ingress,omitzero"`
	Egress  Rate `json:"egress,omitzero"`

	DSCP *uint8 `json:"dscp,omitempty"` // of the packets from the pod; nil: as the pod sets it
}

// Rate is a token bucket: packets that exceed it are dropped. The length of a packet includes its Ethernet header.
type Rate struct {
	Kilobits uint32 `json:"kilobits,omitempty"` // per second; 0: no limit
	Burst    uint32 `json:"burst,omitempty"`    // bytes; 0: the default, see Depth
}

// IsZero reports whether there are no limits.
func (l Limits) IsZero() bool { return l == Limits{} }

// defaultBurst is the least burst of a rate without one: more than the longest packet that a kernel segments late.
const defaultBurst = 80_000

// Depth returns the burst in bytes: by default the bytes of 250 ms, at least 80 kB. On a short path all packets behind
// the burst can be lost, and TCP then waits for its retransmission timeout, in Linux at least 200 ms. A bucket that is
// full before that loses the rest of the time: with 100 ms TCP gets half of the rate.
func (r Rate) Depth() uint32 {
	if r.Burst > 0 {
		return r.Burst
	}
	inQuarter := uint64(r.Kilobits) * 1000 / 8 / 4
	return uint32(min(max(inQuarter, defaultBurst), math.MaxUint32))
}

// Holds rejects a burst that no packet of the MTU passes.
func (l Limits) Holds(mtu int) error {
	for _, r := range []Rate{l.Ingress, l.Egress} {
		if packet := mtu + ethernetHeader; r.Kilobits > 0 && uint64(r.Depth()) < uint64(packet) {
			return fmt.Errorf("burst: %d bytes, and a packet of MTU %d has %d, which would never pass", r.Depth(), mtu,
				packet)
		}
	}
	return nil
}

// validate rejects a burst without a rate.
func (l Limits) validate() error {
	for _, r := range []Rate{l.Ingress, l.Egress} {
		if r.Kilobits == 0 && r.Burst > 0 {
			return errors.New("burst: it needs a rate in the same direction")
		}
	}
	return nil
}

// over returns the limits, which precede the limits of other.
func (l Limits) over(other Limits) Limits {
	if l.Ingress.Kilobits == 0 {
		l.Ingress = other.Ingress
	}
	if l.Egress.Kilobits == 0 {
		l.Egress = other.Egress
	}
	l.DSCP = cmp.Or(l.DSCP, other.DSCP)
	return l
}

// String returns the limits for people.
func (l Limits) String() string {
	var parts []string
	for _, r := range []struct {
		direction string
		Rate
	}{{"ingress", l.Ingress}, {"egress", l.Egress}} {
		if r.Kilobits > 0 {
			parts = append(parts, fmt.Sprintf("%s %s, burst %d bytes", r.direction, kilobitText(r.Kilobits), r.Depth()))
		}
	}
	if l.DSCP != nil {
		parts = append(parts, fmt.Sprintf("DSCP %d", *l.DSCP))
	}
	return strings.Join(parts, "; ")
}

// kilobitText returns a rate with its largest unit.
func kilobitText(n uint32) string {
	switch {
	case n%1_000_000 == 0:
		return fmt.Sprintf("%d Gbit/s", n/1_000_000)
	case n%1000 == 0:
		return fmt.Sprintf("%d Mbit/s", n/1000)
	}
	return fmt.Sprintf("%d kbit/s", n)
}

// The annotations of Kubernetes that limit the main interface.
const (
	limitPrefix       = "kubernetes.io/"
	limitSuffix       = "-bandwidth"
	AnnotationIngress = limitPrefix + "ingress" + limitSuffix
	AnnotationEgress  = limitPrefix + "egress" + limitSuffix
)

// mainInterface is the interface that the annotations of Kubernetes limit.
const mainInterface = "eth0"

// IsLimit reports whether an annotation of Kubernetes limits the bandwidth of a pod's main interface, such as
// kubernetes.io/ingress-bandwidth. Kubernetes leaves these limits to the CNI plugin.
func IsLimit(name string) bool {
	return strings.HasPrefix(name, limitPrefix) && strings.HasSuffix(name, limitSuffix)
}

// LimitProblems returns an error for each invalid limit of a main interface of Weft. An ADD fails with the first. The
// limits of main interfaces of other plugins are theirs.
func LimitProblems(annotations map[string]string) []AnnotationProblem {
	_, problems := annotatedLimits(annotations)
	return problems
}

func annotatedLimits(annotations map[string]string) (l Limits, problems []AnnotationProblem) {
	for _, name := range sortedKeys(annotations) {
		text := annotations[name]
		if !IsLimit(name) || strings.TrimSpace(text) == "" {
			continue
		}
		if name != AnnotationIngress && name != AnnotationEgress {
			problems = append(problems,
				problemOf(name, "unknown limit; known are %s and %s", AnnotationIngress, AnnotationEgress))
			continue
		}
		n, err := parseKilobits(text)
		switch {
		case err != nil:
			problems = append(problems, problemOf(name, "%w", err))
		case name == AnnotationIngress:
			l.Ingress.Kilobits = n
		default:
			l.Egress.Kilobits = n
		}
	}
	return l, problems
}

// MainLimits returns the limits of the main interface: the runtime's precede the limits of the options. Annotations
// limit it if it is the pod's eth0, and the runtime must agree with them: it has its limits from there.
func (r *Request) MainLimits() (Limits, error) {
	l := r.Requested.Limits.over(r.Requested.Options.Limits)
	if !r.HasMain() || r.Key.IfName != mainInterface {
		return l, nil
	}
	annotated, problems := annotatedLimits(r.Annotations)
	if len(problems) > 0 {
		return l, r.Failed(problems[0].Err)
	}
	for _, rate := range []struct {
		annotation string
		says       Rate
		runtime    Rate
	}{
		{AnnotationIngress, annotated.Ingress, r.Requested.Limits.Ingress},
		{AnnotationEgress, annotated.Egress, r.Requested.Limits.Egress},
	} {
		if rate.says.Kilobits > 0 && rate.runtime.Kilobits > 0 && rate.says.Kilobits != rate.runtime.Kilobits {
			return l, r.Failed(Errorf(CodeInvalidAnnotation,
				"annotation %s: %s, and the capability bandwidth of the runtime has %s: they must be the same",
				rate.annotation, kilobitText(rate.says.Kilobits), kilobitText(rate.runtime.Kilobits)))
		}
	}
	return l.over(annotated), nil
}

// suffixes are the multipliers of a quantity of Kubernetes (resource.Quantity), except milli and less.
var suffixes = []struct {
	text   string
	factor int64
}{
	{"Ki", 1 << 10},
	{"Mi", 1 << 20},
	{"Gi", 1 << 30},
	{"Ti", 1 << 40},
	{"Pi", 1 << 50},
	{"Ei", 1 << 60},
	{"k", 1e3},
	{"M", 1e6},
	{"G", 1e9},
	{"T", 1e12},
	{"P", 1e15},
	{"E", 1e18},
}

// maxQuantity limits the length of a quantity, and so the work of parsing it.
const maxQuantity = 32

// parseQuantity parses a quantity of Kubernetes that is not negative, such as 100M, 1.5Gi or 1e6.
func parseQuantity(text string) (*big.Rat, error) {
	invalid := fmt.Errorf("expected a quantity such as 100M or 1.5Gi, not %.80q", text)
	if len(text) > maxQuantity {
		return nil, invalid
	}
	number := text
	factor := big.NewRat(1, 1)
	for _, s := range suffixes {
		if rest, has := strings.CutSuffix(text, s.text); has {
			number = rest
			factor.SetInt64(s.factor)
			break
		}
	}
	if at := strings.IndexAny(number, "eE"); at >= 0 {
		exponent, err := strconv.Atoi(number[at+1:])
		if err != nil || exponent < -99 || exponent > 99 || number != text {
			return nil, invalid
		}
		ten := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(exponent, -exponent))), nil)
		factor.SetInt(ten)
		if exponent < 0 {
			factor.Inv(factor)
		}
		number = number[:at]
	}
	digits := strings.Replace(strings.TrimPrefix(number, "+"), ".", "", 1)
	isDigits := digits != "" && !strings.ContainsFunc(digits, func(r rune) bool { return r < '0' || r > '9' })
	if !isDigits {
		return nil, invalid // SetString would make large numbers of exponents, such as 0x1p-9999999
	}
	value, ok := new(big.Rat).SetString(number)
	if !ok {
		return nil, invalid
	}
	return value.Mul(value, factor), nil
}

// parseKilobits parses a rate in bits per second, at most 4 Tbit/s. The dataplane counts in kilobits: a
// fraction of one is cut off.
func parseKilobits(text string) (uint32, error) {
	value, err := parseQuantity(text)
	if err != nil {
		return 0, err
	}
	if value.Cmp(big.NewRat(1e3, 1)) < 0 || value.Cmp(big.NewRat(4e12, 1)) > 0 {
		return 0, fmt.Errorf("expected 1k to 4T bits per second, not %.80q", text)
	}
	return uint32(floor(value) / 1000), nil
}

// parseBytes parses a burst in bytes.
func parseBytes(text string) (uint32, error) {
	value, err := parseQuantity(text)
	if err != nil {
		return 0, err
	}
	n := floor(value)
	if n < 1 || n > math.MaxUint32 {
		return 0, fmt.Errorf("expected 1 to 4G bytes, not %.80q", text)
	}
	return uint32(n), nil
}

// floor returns the integer part, at most the largest one.
func floor(r *big.Rat) int64 {
	n := new(big.Int).Quo(r.Num(), r.Denom())
	if !n.IsInt64() {
		return math.MaxInt64
	}
	return n.Int64()
}

// parseRate parses the option rate.
func (l *Limits) parseRate(raw json.RawMessage) error {
	return parseDirections(raw, parseKilobits, `"100M"`, directions{&l.Ingress.Kilobits, &l.Egress.Kilobits})
}

// parseBurst parses the option burst.
func (l *Limits) parseBurst(raw json.RawMessage) error {
	return parseDirections(raw, parseBytes, `"1M"`, directions{&l.Ingress.Burst, &l.Egress.Burst})
}

// directions are the values of an option for both directions.
type directions struct{ ingress, egress *uint32 }

// parseDirections parses a quantity for both directions, or an object with one for each.
func parseDirections(raw json.RawMessage, parse func(string) (uint32, error), example string, to directions) error {
	keys, err := members(raw)
	if err != nil {
		text, err := quantityText(raw)
		if err != nil {
			return fmt.Errorf(`expected a quantity such as %s, or {"ingress": %s, "egress": %s}, not %.300q`, example,
				example, example, raw)
		}
		n, err := parse(text)
		*to.ingress = n
		*to.egress = n
		return err
	}
	for _, key := range keys {
		target := map[string]*uint32{"ingress": to.ingress, "egress": to.egress}[key.name]
		if target == nil {
			return fmt.Errorf("%.80q: unknown direction; known are ingress and egress", key.name)
		}
		text, err := quantityText(key.value)
		if err == nil {
			*target, err = parse(text)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key.name, err)
		}
	}
	return nil
}

// quantityText returns the text of a quantity in JSON, a string or a number.
func quantityText(raw json.RawMessage) (text string, err error) {
	var number json.Number
	if json.Unmarshal(raw, &text) == nil && !jsonempty.Is(raw) {
		return text, nil
	}
	if json.Unmarshal(raw, &number) == nil && number != "" {
		return number.String(), nil
	}
	return "", fmt.Errorf("expected a quantity such as 100M, not %.300q", raw)
}

// classes are the DSCPs with a name (RFC 2474, 2597, 3246, 5865, 8622).
var classes = map[string]uint8{
	"CS0": 0, "CS1": 8, "CS2": 16, "CS3": 24, "CS4": 32, "CS5": 40, "CS6": 48, "CS7": 56,
	"AF11": 10, "AF12": 12, "AF13": 14, "AF21": 18, "AF22": 20, "AF23": 22,
	"AF31": 26, "AF32": 28, "AF33": 30, "AF41": 34, "AF42": 36, "AF43": 38,
	"EF": 46, "VA": 44, "LE": 1,
}

// parseDSCP parses the option dscp: a number, or the name of a class.
func (l *Limits) parseDSCP(raw json.RawMessage) error {
	var name string
	var n uint8
	if json.Unmarshal(raw, &name) == nil {
		class, known := classes[strings.ToUpper(name)]
		n = class
		if number, err := strconv.ParseUint(name, 10, 6); err == nil {
			n = uint8(number)
			known = true
		}
		if !known {
			return fmt.Errorf("expected 0 to 63, or a class such as EF, AF41 or CS5, not %.300q", raw)
		}
	} else if json.Unmarshal(raw, &n) != nil || n > 63 {
		return fmt.Errorf("expected 0 to 63, or a class such as EF, AF41 or CS5, not %.300q", raw)
	}
	l.DSCP = &n
	return nil
}

// noBurst is the burst in bits from which on a runtime means the default: containerd and CRI-O pass the largest
// numbers of 32 bits.
const noBurst = math.MaxInt32

// ParseBandwidth parses the capability bandwidth of the CNI conventions, which is also a key of a network selection:
// rates in bits per second, bursts in bits. A rate of 0 is no limit.
func ParseBandwidth(raw []byte) (l Limits, err error) {
	keys, err := members(raw)
	if err != nil {
		return l, err
	}
	bits := map[string]*uint64{
		"ingressRate": new(uint64), "ingressBurst": new(uint64), "egressRate": new(uint64), "egressBurst": new(uint64),
	}
	for _, key := range keys {
		n := bits[key.name]
		if jsonempty.Is(key.value) {
			continue
		}
		if n == nil {
			return l, fmt.Errorf("%.80q: unknown key; known are %s", key.name, strings.Join(sortedKeys(bits), ", "))
		}
		if json.Unmarshal(key.value, n) != nil {
			return l, fmt.Errorf("%s: expected a number of bits, not %.300q", key.name, key.value)
		}
	}
	for _, d := range []struct {
		name string
		to   *Rate
	}{{"ingress", &l.Ingress}, {"egress", &l.Egress}} {
		rate := *bits[d.name+"Rate"]
		burst := *bits[d.name+"Burst"]
		if rate == 0 && burst == 0 {
			continue
		}
		if rate > 0 {
			if d.to.Kilobits, err = parseKilobits(strconv.FormatUint(rate, 10)); err != nil {
				return l, fmt.Errorf("%sRate: %w", d.name, err)
			}
		}
		if burst < noBurst {
			d.to.Burst = uint32((burst + 7) / 8)
		}
	}
	return l, l.validate()
}
