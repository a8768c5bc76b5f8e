package ctl

import (
	"slices"
	"strconv"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// namesOf returns the names of a reply's rows as arguments of weftctl, for -o name: pods, keys of objects,
// numbers, addresses, IDs. ok is false for a reply without names.
func namesOf(v any) (names []string, ok bool) {
	switch reply := v.(type) {
	case *operatorv1.AttachmentsReply:
		for _, a := range reply.Attachments {
			names = append(names, podOrContainer(a.Pod, a.Attachment))
		}
	case *operatorv1.CountersReply:
		for _, i := range reply.Interfaces {
			names = append(names, podOrContainer(i.Pod, i.Attachment))
		}
	case *operatorv1.QuarantineReply:
		for _, e := range reply.Entries {
			names = append(names, podOrContainer(e.Pod, e.Attachment))
		}
	case *operatorv1.ObjectsReply:
		for _, o := range reply.Objects {
			names = append(names, o.Ref)
		}
	case *operatorv1.AuditReply:
		for _, d := range reply.Found {
			names = append(names, d.Ref)
		}
	case *operatorv1.TransactionsReply:
		for _, t := range reply.Transactions {
			names = append(names, strconv.FormatUint(t.Seq, 10))
		}
	case *operatorv1.EventRecord:
		names = append(names, strconv.FormatUint(reply.Seq, 10))
	case *operatorv1.TransactionRecord:
		names = append(names, strconv.FormatUint(reply.Seq, 10))
	case *operatorv1.AddressesReply:
		for _, l := range reply.Leases {
			names = append(names, l.Address)
		}
	case *operatorv1.DevicesReply:
		for _, a := range reply.Allocations {
			names = append(names, a.Devices...)
		}
	case *operatorv1.CollectGarbageReply:
		for _, g := range reply.Garbage {
			names = append(names, g.Key)
		}
	default:
		return nil, false
	}
	return distinct(names), true
}

// distinct removes repeated names: a pod has several interfaces.
func distinct(names []string) []string {
	known := make(map[string]bool)
	return slices.DeleteFunc(names, func(name string) bool {
		repeated := known[name]
		known[name] = true
		return repeated
	})
}

func podOrContainer(p *weftv1.Pod, a *weftv1.Attachment) string {
	if p.GetName() == "" {
		return a.GetContainerId()
	}
	return podName(p)
}
