package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/weftnet/weft/internal/jsonerror"
)

// node has the settings of the plugin that belong to the node: paths that root uses, and the content that root writes
// there. A network configuration may come from a NetworkAttachmentDefinition, which a tenant may write, and the plugin
// cannot tell its author. So a configuration may repeat these settings, and not change them.
type node struct {
	nodeSettings

	file         string // from which they come
	configurable bool   // a configuration may change them
}

// nodeSettings are the keys of the node's file, and of a network configuration.
type nodeSettings struct {
	Socket      string `json:"socket"`
	DeleteQueue string `json:"deleteQueue"`
	LogLevel    string `json:"logLevel"`
	LogFile     string `json:"logFile"` // "" = no log
}

func defaultSettings() nodeSettings {
	return nodeSettings{Socket: "/run/weft/agent.sock", DeleteQueue: "/var/lib/weft/delete-queue", LogLevel: "info"}
}

// nodeFile is the name of the node's file, in the directory of the program, where only root can write.
const nodeFile = "weft-cni.json"

// With this variable in the environment of the runtime, its network configurations may have any paths, as on private
// nodes. Pods and NetworkAttachmentDefinitions cannot change that environment.
const (
	PathsVariable          = "WEFT_CNI_PATHS"
	PathsFromConfiguration = "configuration"
)

// readNode reads the settings of the node from the file beside this program; without the file they are the defaults.
func readNode() (node, error) {
	program, err := os.Executable()
	if err != nil {
		return node{}, fmt.Errorf("find the file %s of the node: %w", nodeFile, err)
	}
	n, err := readNodeFile(filepath.Join(filepath.Dir(program), nodeFile))
	n.configurable = os.Getenv(PathsVariable) == PathsFromConfiguration
	return n, err
}

func readNodeFile(path string) (node, error) {
	n := node{nodeSettings: defaultSettings(), file: path}
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0) // an open of a FIFO blocks
	if errors.Is(err, fs.ErrNotExist) {
		return n, nil
	}
	if err != nil {
		return n, fmt.Errorf("read the settings of the node: %w", err)
	}
	defer file.Close()
	if err := onlyOwnersFile(file); err != nil {
		return n, fmt.Errorf("settings of the node %s: %w", path, err)
	}
	var content bytes.Buffer
	if _, err := content.ReadFrom(file); err != nil {
		return n, fmt.Errorf("read the settings of the node %s: %w", path, err)
	}
	decoder := json.NewDecoder(&content)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&n.nodeSettings); err != nil {
		return n, fmt.Errorf("settings of the node %s: %w", path, jsonerror.Plain(err))
	}
	if err := n.validate(); err != nil {
		return n, fmt.Errorf("settings of the node %s: %w", path, err)
	}
	return n, nil
}

// onlyOwnersFile rejects a file that others than root and the user of this process could have written.
func onlyOwnersFile(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	stat, is := info.Sys().(*syscall.Stat_t)
	if !is || !info.Mode().IsRegular() || stat.Uid != 0 && int(stat.Uid) != os.Geteuid() ||
		info.Mode().Perm()&0o022 != 0 {
		return errors.New("it must be a regular file of root that only root can write")
	}
	return nil
}

func (s *nodeSettings) validate() error {
	switch {
	case !filepath.IsAbs(s.Socket) || len(s.Socket) > maxSocketPath:
		return fmt.Errorf("socket %q is not an absolute path of at most %d bytes", s.Socket, maxSocketPath)
	case !filepath.IsAbs(s.DeleteQueue):
		return fmt.Errorf("deleteQueue %q is not an absolute path", s.DeleteQueue)
	case !slices.Contains(levels, s.LogLevel):
		return fmt.Errorf("invalid logLevel %q, use one of %s", s.LogLevel, strings.Join(levels, ", "))
	case s.LogFile != "" && !filepath.IsAbs(s.LogFile):
		return fmt.Errorf("logFile %q is not an absolute path", s.LogFile)
	}
	return validateLogFile(s.LogFile)
}

// admits rejects settings of a network configuration that are not the node's.
func (n node) admits(s nodeSettings) error {
	if n.configurable {
		return nil
	}
	for _, setting := range []struct{ key, asked, has string }{
		{"socket", s.Socket, n.Socket}, {"deleteQueue", s.DeleteQueue, n.DeleteQueue},
		{"logLevel", s.LogLevel, n.LogLevel}, {"logFile", s.LogFile, n.LogFile},
	} {
		if setting.asked != setting.has {
			return fmt.Errorf(
				"%s %q is not the node's, which is %q: this setting comes from %s on the node and from no network configuration; remove the key, or change the node's file",
				setting.key, setting.asked, setting.has, n.file)
		}
	}
	return nil
}
