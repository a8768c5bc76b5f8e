package conformance

import (
	"fmt"
	"net"
	"reflect"
	"regexp"
	"strings"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/ethernet_types"
	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/ip_types"
)

// printer prints messages such that the text is the same in each run: interfaces have the names of the case, and random
// parts of MACs are omitted.
type printer struct {
	interfaces map[uint32]string
	replace    *strings.Replacer // of paths
}

// unsaid are omitted fields: counts of lists that are printed, and indexes that depend on earlier events or on the
// build.
var unsaid = map[string]bool{
	"stats_index": true, "n_paths": true, "n_sw_ifs": true, "n_labels": true, "count": true, "cookie": true,
	"client_index": true, "vpe_pid": true,
	"label_stack": true, "age": true, "node_index": true,
	// of VPP's arithmetic of policers
	"scale": true, "cir_tokens_per_period": true, "pir_tokens_per_period": true, "last_update_time": true,
	"current_limit": true, "current_bucket": true, "extended_limit": true, "extended_bucket": true,
}

// fields prints a message without its name.
func (p *printer) fields(m api.Message) string {
	return p.structure(reflect.ValueOf(m).Elem(), m.GetMessageName())
}

func (p *printer) structure(v reflect.Value, message string) string {
	var out []string
	for i := range v.NumField() {
		_, name, _ := strings.Cut(v.Type().Field(i).Tag.Get("binapi"), "name=")
		name, _, _ = strings.Cut(name, ",")
		if unsaid[name] || name == "retval" {
			continue
		}
		if text, output := p.field(name, v.Field(i), message); output {
			out = append(out, text)
		}
	}
	return strings.Join(out, " ")
}

// field prints one field. It omits zero values, except of interfaces and prefixes.
func (p *printer) field(name string, v reflect.Value, message string) (text string, output bool) {
	switch {
	case strings.HasSuffix(name, "sw_if_index") || strings.HasSuffix(v.Type().Name(), "InterfaceIndex"):
		return name + "=" + p.interfaceName(uint32(v.Uint())), true
	case strings.Contains(v.Type().Name(), "Prefix"):
	case v.IsZero():
		return "", false
	case v.Kind() == reflect.Bool:
		return name, true
	}
	return name + "=" + p.value(v, message), true
}

func (p *printer) interfaceName(index uint32) string {
	if index == ^uint32(0) {
		return "none"
	}
	if name, ok := p.interfaces[index]; ok {
		return name
	}
	return fmt.Sprintf("#%d", index)
}

var randomMAC = regexp.MustCompile(`02:fe(:[0-9a-f]{2}){4}`)

func (p *printer) value(v reflect.Value, message string) string {
	switch x := v.Interface().(type) {
	case fib_types.FibPath:
		return p.path(x)
	case ethernet_types.MacAddress:
		return randomMAC.ReplaceAllString(net.HardwareAddr(x[:]).String(), "02:fe:random")
	case fmt.Stringer:
		return x.String()
	case string:
		if x = p.replace.Replace(x); strings.ContainsAny(x, " \n") || x == "" {
			return fmt.Sprintf("%q", x)
		}
		return x
	case uint32:
		if x == ^uint32(0) {
			return "~0"
		}
	}
	switch v.Kind() {
	case reflect.Struct:
		return "{" + p.structure(v, message) + "}"
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return fmt.Sprintf("%x", v.Interface())
		}
		var items []string
		for i := range v.Len() {
			items = append(items, p.value(v.Index(i), message))
		}
		return "[" + strings.Join(items, " ") + "]"
	default:
		return fmt.Sprint(v.Interface())
	}
}

// path prints a path of a route; its next hop has the family of the path.
func (p *printer) path(f fib_types.FibPath) string {
	af := ip_types.ADDRESS_IP4
	if f.Proto == fib_types.FIB_API_PATH_NH_PROTO_IP6 {
		af = ip_types.ADDRESS_IP6
	}
	out := []string{enum(f.Type, "FIB_API_PATH_TYPE_"), enum(f.Proto, "FIB_API_PATH_NH_PROTO_")}
	if f.Nh.Address != (ip_types.AddressUnion{}) {
		out = append(out, ip_types.Address{Af: af, Un: f.Nh.Address}.String())
	}
	out = append(out, p.interfaceName(f.SwIfIndex))
	for name, number := range map[string]uint32{"obj": f.Nh.ObjID} {
		if number != 0 {
			out = append(out, fmt.Sprintf("%s=%d", name, number))
		}
	}
	text := fmt.Sprintf("%s table=%d rpf=%d weight=%d preference=%d", strings.Join(out, " "), f.TableID, f.RpfID,
		f.Weight, f.Preference)
	if f.Flags != 0 {
		text += " " + enum(f.Flags, "FIB_API_PATH_FLAG_")
	}
	return "{" + text + "}"
}

func enum(v fmt.Stringer, prefix string) string { return strings.TrimPrefix(v.String(), prefix) }

// result prints the result of a reply.
func result(m api.Message) string {
	field := reflect.ValueOf(m).Elem().FieldByName("Retval")
	if !field.IsValid() || field.Int() == 0 {
		return "ok"
	}
	return strings.TrimPrefix(api.VPPApiError(field.Int()).Error(), "VPPApiError: ")
}
