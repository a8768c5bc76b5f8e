package dra

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	grpcmetadata "google.golang.org/grpc/metadata"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	"k8s.io/utils/ptr"

	"github.com/weftnet/weft/pod"
)

// attributes that only the metadata of a device have, because they are known when it is prepared, or after the ADD.
const (
	// its path in the container; of a server on a direct network the name that it listens on
	attributeSocket    = "socket"
	attributeSecret    = "secret" // path of the file in the container
	attributeID        = "id"
	attributeMode      = "mode"
	attributeNetwork   = "network"
	attributeMTU       = "mtu"
	attributeRingSize  = "ringSize"
	attributeBuffers   = "bufferSize"
	attributeRxQueues  = "rxQueues"
	attributeTxQueues  = "txQueues"
	attributeInterface = "interfaces" // path of interfaces.json in the container
)

// metadata writes the files with the devices of a claim that containers have (KEP-5304). The library makes a file for
// each request of a claim when kubelet prepares it, and deletes them when kubelet releases it. The interfaces of the
// devices are known after the ADD.
type metadata struct {
	// writing is held while update writes files, and while files are read: the library does not replace them at once,
	// so a file that is being written looks lost. The event loop waits for it: a goroutine that waits for the loop must
	// not hold it.
	writing sync.Mutex

	mu         sync.Mutex
	helper     *kubeletplugin.Helper    // nil: kubelet is not served
	interfaces map[string]pod.Interface // by allocation
	unwritten  map[requestOf]bool       // the last write failed
}

// note remembers whether the file of a request has to be written again.
func (m *metadata) note(of requestOf, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		delete(m.unwritten, of)
		return
	}
	m.unwritten[of] = true
}

// isUnwritten reports whether the file with an allocation has to be written again.
func (m *metadata) isUnwritten(a *pod.Allocation) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unwritten[requestOf{a.Claim.ClaimID, a.Claim.Request}]
}

// prepared returns the device of an allocation as the library has it.
func (d *Driver) prepared(a *pod.Allocation) kubeletplugin.Device {
	return kubeletplugin.Device{
		Requests:     []string{a.Claim.Request},
		PoolName:     d.config.Node,
		DeviceName:   a.Claim.Device,
		CDIDeviceIDs: []string{d.config.CDIDevice(a)},
		Metadata:     d.metadataOf(a),
	}
}

// metadataOf returns the attributes of a device's ResourceSlice, where a container has its files, and, after the ADD,
// its interface.
func (d *Driver) metadataOf(a *pod.Allocation) *kubeletplugin.DeviceMetadata {
	text := func(s string) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{StringValue: &s} }
	number := func(n int) resourceapi.DeviceAttribute {
		return resourceapi.DeviceAttribute{IntValue: ptr.To(int64(n))}
	}
	m := &kubeletplugin.DeviceMetadata{Attributes: make(map[string]resourceapi.DeviceAttribute)}
	for name, value := range d.device(a.Claim.Device).Attributes {
		m.Attributes[string(name)] = value
	}
	directory := d.config.Mount(a)
	m.Attributes[attributeSocket] = text(directory + "/memif.sock")
	m.Attributes[attributeSecret] = text(directory + "/secret")
	m.Attributes[attributeInterface] = text(directory + "/interfaces.json")
	d.metadata.mu.Lock()
	defer d.metadata.mu.Unlock()
	i, connected := d.metadata.interfaces[a.ID]
	if !connected {
		return m
	}
	m.NetworkData = networkData(i)
	for name, value := range map[string]int{
		attributeID: int(i.Memif.ID), attributeMTU: i.MTU, attributeRingSize: i.Memif.RingSize,
		attributeBuffers:  i.Memif.BufferSize,
		attributeRxQueues: i.Memif.RxQueues, attributeTxQueues: i.Memif.TxQueues,
	} {
		m.Attributes[name] = number(value)
	}
	m.Attributes[attributeMode] = text(i.Memif.Mode)
	m.Attributes[attributeNetwork] = text(i.Network)
	if i.Network == "" {
		m.Attributes[attributeNetwork] = text(pod.DefaultNetwork)
	}
	switch i.Memif.Role {
	case pod.RoleClient:
		m.Attributes[attributeSocket] = text(directory + "/" + path.Base(i.Memif.DirectSocket()))
	case pod.RoleServer:
		m.Attributes[attributeRole] = text(i.Memif.Role)
		m.Attributes[attributeSocket] = text(i.ServerSocket())
	}
	return m
}

// networkData describes an interface in the status of a claim and in its metadata.
func networkData(i pod.Interface) *resourceapi.NetworkDeviceData {
	data := &resourceapi.NetworkDeviceData{InterfaceName: i.Name, HardwareAddress: i.MAC.String()}
	for _, p := range i.Addresses {
		data.IPs = append(data.IPs, p.String())
	}
	return data
}

// connected adds the interfaces of an attachment, by allocation, to the metadata, before the ADD returns: the
// containers start afterwards.
func (d *Driver) connected(interfaces map[string]pod.Interface) {
	if len(interfaces) == 0 {
		return
	}
	d.metadata.mu.Lock()
	for allocation, i := range interfaces {
		d.metadata.interfaces[allocation] = i
	}
	d.metadata.mu.Unlock()
	d.update(func(a *pod.Allocation) bool { _, is := interfaces[a.ID]; return is })
}

// serve starts to write metadata, with the interfaces from before.
func (d *Driver) serve(helper *kubeletplugin.Helper) {
	d.metadata.mu.Lock()
	d.metadata.helper = helper
	d.metadata.mu.Unlock()
	d.update(d.isConnected)
}

// requestOf is a request of a claim, without the chosen alternative: it has one file.
type requestOf struct {
	pod.ClaimID
	request string
}

// update writes the metadata of the requests with one of the chosen allocations. All devices of a request are in one
// file.
func (d *Driver) update(isChosen func(*pod.Allocation) bool) {
	d.metadata.writing.Lock()
	defer d.metadata.writing.Unlock()
	d.metadata.mu.Lock()
	helper := d.metadata.helper
	d.metadata.mu.Unlock()
	if helper == nil {
		return
	}
	devices := make(map[requestOf][]kubeletplugin.Device)
	chosen := make(map[requestOf]bool)
	for _, a := range d.config.Devices.Allocations() {
		if a.Claim == nil {
			continue
		}
		of := requestOf{a.Claim.ClaimID, a.Claim.Request}
		devices[of] = append(devices[of], d.prepared(&a))
		chosen[of] = chosen[of] || isChosen(&a)
	}
	for of := range chosen {
		if !chosen[of] {
			continue
		}
		err := helper.UpdateRequestMetadata(context.Background(), of.Namespace, of.Name, types.UID(of.UID), of.request,
			devices[of])
		if err != nil {
			d.config.Log.Warn("metadata of a claim not written, retrying", "claim", of.String(), "err", err)
		}
		d.metadata.note(of, err)
	}
}

// directory is where the library has the driver's files and socket.
func (d *Driver) directory() string {
	return filepath.Join(d.config.KubeletDir, "plugins", pod.ClaimDriver)
}

// metadataFiles returns the paths of the library's files for a claim: the directory of its metadata, and the beginning
// of its CDI files.
func (d *Driver) metadataFiles(id pod.ClaimID) (directory, cdi string) {
	return filepath.Join(d.directory(), "dra-device-metadata", id.Namespace+"_"+id.Name), filepath.Join(d.config.CDIDir,
		pod.ClaimDriver+"_metadata_"+id.UID+"_")
}

// ownRequest marks the requests of the driver itself among the requests of kubelet.
const ownRequest = "weft-restore"

// errNotLost answers a request of the driver itself for a claim that has all its files.
var errNotLost = errors.New("its metadata is complete")

// isNeedless reports whether a request comes from the driver itself, and the claim has all its files: kubelet prepared
// it meanwhile. The library writes the files of one request after the other, so none is being written now.
func (d *Driver) isNeedless(ctx context.Context, claim pod.ClaimID) bool {
	isOwn := len(grpcmetadata.ValueFromIncomingContext(ctx, ownRequest)) > 0
	return isOwn && !d.lostClaims()[claim]
}

// removalTime is what the library needs to remove metadata after a claim was released.
const removalTime = time.Second

// succeeded lets the metadata of a prepared claim be restored soon, if a released claim had the same name: the library
// has one directory for a name, and removes it when kubelet releases the first claim late.
func (d *Driver) succeeded(released pod.ClaimID) {
	for _, id := range d.config.Devices.Claims() {
		if id.Namespace != released.Namespace || id.Name != released.Name {
			continue
		}
		select {
		case d.successor <- struct{}{}:
		default: // it is restored already
		}
		return
	}
}

// lostClaims returns the prepared claims that lack metadata.
func (d *Driver) lostClaims() map[pod.ClaimID]bool {
	d.metadata.writing.Lock()
	defer d.metadata.writing.Unlock()
	lost := make(map[pod.ClaimID]bool)
	for _, a := range d.config.Devices.Allocations() {
		if a.Claim == nil {
			continue
		}
		request := resourceclaim.BaseRequestRef(a.Claim.Request)
		directory, cdi := d.metadataFiles(a.Claim.ClaimID)
		for _, file := range []string{filepath.Join(directory, request, "metadata.json"), cdi + request + ".json"} {
			if isLost(file) {
				lost[a.Claim.ClaimID] = true
			}
		}
	}
	return lost
}

// restore recreates lost metadata of prepared claims: a container that restarts needs them. Only the library's answer
// to kubelet makes them, so the driver repeats kubelet's request. An ADD may connect the devices meanwhile, so their
// interfaces are added afterwards. It also writes again what an ADD could not write.
func (d *Driver) restore(ctx context.Context) {
	for id := range d.lostClaims() {
		if err := d.prepareAgain(ctx, id); err != nil && ctx.Err() == nil {
			d.config.Log.Warn("lost metadata of a claim not recreated, retrying", "claim", id.String(), "err", err)
			continue
		}
		d.update(func(a *pod.Allocation) bool { return a.Claim.ClaimID == id && d.isConnected(a) })
	}
	d.update(d.metadata.isUnwritten)
}

// isConnected reports whether the interface of an allocation is known.
func (d *Driver) isConnected(a *pod.Allocation) bool {
	d.metadata.mu.Lock()
	defer d.metadata.mu.Unlock()
	_, is := d.metadata.interfaces[a.ID]
	return is
}

// isLost reports whether a file of JSON is missing or incomplete: the library does not replace its files at once, so a
// full disk may cut them.
func isLost(file string) bool {
	content, err := os.ReadFile(file)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	documents := json.NewDecoder(bytes.NewReader(content))
	for n := 0; ; n++ {
		var document json.RawMessage
		if err := documents.Decode(&document); err != nil {
			return n == 0 || !errors.Is(err, io.EOF)
		}
	}
}

// prepareAgain is a request of kubelet.
func (d *Driver) prepareAgain(ctx context.Context, id pod.ClaimID) error {
	conn, err := grpc.NewClient("unix://"+filepath.Join(d.directory(), "dra.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(grpcmetadata.AppendToOutgoingContext(ctx, ownRequest, "1"), writeTimeout)
	defer cancel()
	reply, err := drapb.NewDRAPluginClient(conn).NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{
		Claims: []*drapb.Claim{{Namespace: id.Namespace, Name: id.Name, Uid: id.UID}},
	})
	if err != nil {
		return err
	}
	if why := reply.GetClaims()[id.UID].GetError(); why != "" && why != errNotLost.Error() {
		return errors.New(why)
	}
	return nil
}

// released forgets the interfaces of released allocations, and their files.
func (d *Driver) released() {
	left := make(map[string]bool)
	requests := make(map[requestOf]bool)
	for _, a := range d.config.Devices.Allocations() {
		left[a.ID] = true
		if a.Claim != nil {
			requests[requestOf{a.Claim.ClaimID, a.Claim.Request}] = true
		}
	}
	d.metadata.mu.Lock()
	defer d.metadata.mu.Unlock()
	for allocation := range d.metadata.interfaces {
		if !left[allocation] {
			delete(d.metadata.interfaces, allocation)
		}
	}
	maps.DeleteFunc(d.metadata.unwritten, func(of requestOf, _ bool) bool { return !requests[of] })
}

// removeMetadata deletes the library's files for a claim that was released without kubelet. Another claim may have its
// name.
func (d *Driver) removeMetadata(id pod.ClaimID) error {
	d.released()
	if strings.ContainsRune(id.Namespace+id.Name, '/') {
		return fmt.Errorf("claim %q has a name that is no file name", id)
	}
	directory, cdi := d.metadataFiles(id)
	entries, err := os.ReadDir(d.config.CDIDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("CDI files of the metadata of claim %s: %w", id, err)
	}
	var errs []error
	for _, e := range entries {
		if file := filepath.Join(d.config.CDIDir, e.Name()); strings.HasPrefix(file, cdi) {
			errs = append(errs, os.Remove(file))
		}
	}
	for _, other := range d.config.Devices.Claims() {
		if other.String() == id.String() {
			return errors.Join(errs...)
		}
	}
	return errors.Join(append(errs, os.RemoveAll(directory))...)
}
