package api

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/weftnet/weft/vswitch/model"
)

// showBridges serves "show bridge-domain [<id> [detail|int]]".
func (s *Server) showBridges(words []string) string {
	id, members := model.NoIndex, false
	if len(words) > 0 {
		n, err := strconv.ParseUint(words[0], 10, 32)
		if err != nil || len(words) > 2 {
			return unknownInput(words)
		}
		id, members = uint32(n), len(words) == 2 && slices.Contains([]string{"detail", "det", "int"}, words[1])
	}
	list := s.model.Bridges(id)
	switch {
	case id == 0:
		return "show bridge-domain: No operations on the default bridge domain are supported\n"
	case len(list) == 0 && id != model.NoIndex:
		return fmt.Sprintf("show bridge-domain: No such bridge domain %d\n", id)
	case len(list) == 0:
		return "no bridge-domains in use\n"
	}
	text := s.bridgeTable(list)
	if members {
		text += s.memberTable(list[0])
		if list[0].Tag != "" && words[1] != "int" {
			text += "\n  BD-Tag: " + list[0].Tag + "\n"
		}
	}
	return text
}

func (s *Server) bridgeTable(list []model.BridgeDetails) string {
	names := s.names()
	return page(func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "BD-ID\tIndex\tAge(min)\tLearning\tU-Forwrd\tUU-Flood\tFlooding\tARP-Term\tarp-ufwd\tLearn-count\tBVI-Intf")
		for _, b := range list {
			age, uu := "off", "drop"
			if b.Age > 0 {
				age = strconv.Itoa(int(b.Age))
			}
			if b.Flags&model.BridgeUUFlood != 0 {
				uu = "flood"
			}
			fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", b.ID, b.Index, age, onOff(b.Flags, model.BridgeLearn),
				onOff(b.Flags, model.BridgeForward), uu, onOff(b.Flags, model.BridgeFlood), "off", "off", b.Learned, nameOf(names, b.BVI))
		}
	})
}

func (s *Server) memberTable(b model.BridgeDetails) string {
	if len(b.Members) == 0 {
		return ""
	}
	names := s.names()
	return "\n" + page(func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "Interface\tIf-idx\tSHG\tBVI\tTxFlood\tVLAN-Tag-Rewrite")
		for _, m := range b.Members {
			fmt.Fprintf(w, "%s\t%d\t%d\t%s\t*\tnone\n", nameOf(names, m.Interface), m.Interface, m.SplitHorizon, star(m.Interface == b.BVI))
		}
	})
}

func onOff(f, flag model.BridgeFlags) string {
	if f&flag != 0 {
		return "on"
	}
	return "off"
}

func star(is bool) string {
	if is {
		return "*"
	}
	return "-"
}

// nameOf is an interface's name as VPP's layer 2 commands write it.
func nameOf(names map[uint32]string, index uint32) string {
	if index == model.NoIndex {
		return "N/A"
	}
	if name, ok := names[index]; ok {
		return name
	}
	return "Stale"
}

// showL2FIB serves "show l2fib [all|verbose|learn|add|bd_id <id>]"; without a word it only counts.
func (s *Server) showL2FIB(words []string) string {
	id, shown := model.NoIndex, func(model.L2Entry) bool { return true }
	switch {
	case len(words) == 0:
		shown = nil
	case words[0] == "all", words[0] == "verbose":
	case words[0] == "learn":
		shown = func(e model.L2Entry) bool { return e.Learned }
	case words[0] == "add":
		shown = func(e model.L2Entry) bool { return !e.Learned }
	case words[0] == "bd_id" && len(words) == 2:
		n, err := strconv.ParseUint(words[1], 10, 32)
		if err != nil || len(s.model.Bridges(uint32(n))) == 0 {
			return fmt.Sprintf("show l2fib: bridge domain id %s doesn't exist\n", strings.ToValidUTF8(words[1], "?"))
		}
		id = uint32(n)
	default:
		return unknownInput(words)
	}
	all := s.model.L2Entries(model.NoIndex)
	if len(all) == 0 {
		return "no l2fib entries\n"
	}
	text := ""
	if shown != nil {
		text = s.macTable(slices.DeleteFunc(slices.Clone(all), func(e model.L2Entry) bool {
			return !shown(e) || id != model.NoIndex && id != e.Bridge
		}))
	}
	learned := 0
	for _, e := range all {
		if e.Learned {
			learned++
		}
	}
	return text + fmt.Sprintf("L2FIB total/learned entries: %d/%d\n", len(all), learned)
}

func (s *Server) macTable(list []model.L2Entry) string {
	names := s.names()
	indexes := map[uint32]int{}
	ages := map[uint32]bool{}
	for _, b := range s.model.Bridges(model.NoIndex) {
		indexes[b.ID], ages[b.ID] = b.Index, b.Age > 0
	}
	return page(func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "Mac-Address\tBD-Idx\tIf-Idx\tAge(min)\tstatic\tfilter\tbvi\tInterface-Name")
		for _, e := range list {
			age := "-"
			switch {
			case !e.Learned:
				age = "no"
			case ages[e.Bridge]:
				age = strconv.Itoa(int(e.Age.Minutes()))
			}
			fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\n", e.MAC, indexes[e.Bridge], int32(e.Interface), age,
				star(e.Static), star(e.Filter), star(e.BVI), nameOf(names, e.Interface))
		}
	})
}
