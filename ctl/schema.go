package ctl

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/weftnet/weft/k8s/lint"
	"github.com/weftnet/weft/proto/document"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// documentTypes has a value of each type of which a command prints documents, by the path of the command. A stream has
// the type of its lines.
var documentTypes = map[string][]any{
	"status":               {&operatorv1.StateReply{}},
	"attachments":          {&operatorv1.AttachmentsReply{}},
	"pod":                  {storyDocument{}},
	"events":               {&operatorv1.EventRecord{}},
	"event":                {&operatorv1.EventRecord{}},
	"transactions":         {&operatorv1.TransactionsReply{}},
	"transaction":          {&operatorv1.TransactionRecord{}},
	"objects":              {&operatorv1.ObjectsReply{}},
	"why":                  {&operatorv1.WhyReply{}},
	"diff":                 {&operatorv1.DiffReply{}},
	"graph":                {&operatorv1.GraphReply{}},
	"plan pod":             {&operatorv1.PlanReply{}},
	"plan config":          {&operatorv1.PlanReply{}},
	"plan external":        {&operatorv1.PlanReply{}},
	"addresses":            {&operatorv1.AddressesReply{}},
	"addresses blocks":     {blocksReport{}},
	"addresses check":      {checkResult{}},
	"devices":              {&operatorv1.DevicesReply{}},
	"policy":               {&operatorv1.PolicyReply{}},
	"counters":             {&operatorv1.CountersReply{}},
	"dataplane interfaces": {&operatorv1.DataplaneInterfaces{}},
	"dataplane memifs":     {&operatorv1.DataplaneMemifs{}},
	"dataplane drops":      {&operatorv1.DataplaneDrops{}},
	"dataplane fib":        {&operatorv1.DataplaneFIB{}},
	"dataplane bridges":    {&operatorv1.DataplaneBridges{}},
	"dataplane neighbours": {&operatorv1.DataplaneNeighbours{}},
	"dataplane runtime":    {&operatorv1.DataplaneRuntime{}},
	"profile":              {writtenProfile{}},
	"capture":              {capturedPacket{}, &operatorv1.CaptureEnd{}}, // the end: of a capture into a file
	"trace":                {&operatorv1.TracedPacket{}},
	"settings":             {map[string]any{}}, // docs/reference/configuration.schema.json has its keys
	"resync":               {&operatorv1.ResyncReply{}},
	"audit":                {&operatorv1.AuditReply{}},
	"log-level":            {&operatorv1.LogLevelReply{}},
	"configure":            {&operatorv1.ConfigureReply{}},
	"quarantine list":      {&operatorv1.QuarantineReply{}},
	"quarantine release":   {&operatorv1.ReleaseReply{}},
	"upgrade check":        {upgradeCheck{}},
	"gc":                   {&operatorv1.CollectGarbageReply{}},
	"bundle":               {writtenBundle{}},
	"lint":                 {lint.Report{}},
	"check":                {checkReport{}},
}

func schemaCommand(c *client) *cobra.Command {
	return &cobra.Command{
		Use:   "schema COMMAND",
		Short: "Prints the JSON Schema of the documents that a command prints with -o json",
		Long: `Prints the JSON Schema (draft 2020-12) of the documents that a command of this version prints with -o json.
Each line of a stream of JSON lines follows the schema of the command.

With --all-nodes it is the schema of the answers of several nodes, as kubectl weft prints them without --node.`,
		Example: "  weftctl schema attachments\n  weftctl schema addresses blocks\n" +
			"  weftctl schema events --all-nodes >events.schema.json",
		Args:              usage(cobra.MinimumNArgs(1)),
		ValidArgsFunction: completeDocuments,
		RunE: func(cmd *cobra.Command, args []string) error {
			of, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 || of == cmd.Root() {
				return unknownCommand(cmd.Root(), args)
			}
			schema, err := c.schemaOf(of, c.fleet.all)
			if err != nil {
				return err
			}
			return c.show(schema, func() {
				asJSON := c.printer
				asJSON.format = "json"
				_ = asJSON.document(schema) // maps and texts are valid JSON
			})
		},
	}
}

// completeDocuments completes the words of a command that prints documents.
func completeDocuments(_ *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	before := strings.Join(append(args, ""), " ")
	var words []string
	for _, path := range slices.Sorted(maps.Keys(documentTypes)) {
		rest, ok := strings.CutPrefix(path, before)
		if word, _, _ := strings.Cut(rest, " "); ok && strings.HasPrefix(word, prefix) {
			words = append(words, word)
		}
	}
	return distinct(words), cobra.ShellCompDirectiveNoFileComp
}

// schemaOf returns the schema of the documents of a command: of one node, or of several.
func (c *client) schemaOf(cmd *cobra.Command, several bool) (map[string]any, error) {
	path := pathOf(cmd)
	types, prints := documentTypes[path]
	several = several && classOf(cmd) != here
	switch {
	case !prints:
		return nil, usageError{fmt.Errorf("schema: %s %s prints no JSON documents", c.name(), path)}
	case several && slices.Contains(wholeFiles, path):
		return nil, usageError{fmt.Errorf("schema: %s %s runs on one node at a time", c.name(), path)}
	case several && path == "status":
		types = []any{clusterState{}}
		several = false
	}
	defs := map[string]any{}
	alternatives := make([]any, len(types))
	for i, v := range types {
		alternatives[i] = schemaOfType(reflect.TypeOf(v), defs)
	}
	schema := map[string]any{"anyOf": alternatives}
	if several {
		schema = schemaOfNodes(cmd, schema, defs)
	}
	schema["$schema"] = document.Dialect
	schema["title"] = c.name() + " " + path + " -o json"
	schema["$defs"] = defs
	return schema, nil
}

// schemaOfNodes returns the schema of the answers of several nodes: a document with all of them, a line for each line
// of a stream, or both, of a command that follows on request.
func schemaOfNodes(cmd *cobra.Command, output map[string]any, defs map[string]any) map[string]any {
	defs[outputs] = map[string]any{"anyOf": []any{
		output, map[string]any{"type": "array", "items": output}, map[string]any{"type": "string"},
	}}
	line := schemaOfType(reflect.TypeFor[nodeAnswer](), defs)
	whole := schemaOfType(reflect.TypeFor[nodeAnswers](), defs)
	switch {
	case classOf(cmd) == streams:
		return line
	case cmd.Flags().Lookup("follow") != nil:
		return map[string]any{"anyOf": []any{whole, line}}
	}
	return whole
}

// outputs is the name of the schema of nodeOutput. It is no name of a message.
const outputs = "output"

// schemaOfType returns the schema of the JSON of a type's values. It adds the schemas of messages to defs.
func schemaOfType(t reflect.Type, defs map[string]any) map[string]any {
	if m, ok := reflect.Zero(t).Interface().(proto.Message); ok {
		return document.Schema(m.ProtoReflect().Descriptor(), defs)
	}
	if t == reflect.TypeFor[nodeOutput]() {
		return map[string]any{"$ref": "#/$defs/" + outputs}
	}
	switch t.Kind() {
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int:
		return map[string]any{"type": "integer"}
	case reflect.Uint, reflect.Uint32, reflect.Uint64:
		return map[string]any{"type": "integer", "minimum": 0}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOfType(t.Elem(), defs)}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOfType(t.Elem(), defs)}
	case reflect.Struct:
		return schemaOfStruct(t, defs)
	}
	return map[string]any{} // any JSON
}

func schemaOfStruct(t reflect.Type, defs map[string]any) map[string]any {
	properties := map[string]any{}
	required := []string{}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || !f.IsExported() || name == "-" {
			continue
		}
		properties[name] = schemaOfType(f.Type, defs)
		if options != "omitempty" {
			required = append(required, name)
		}
	}
	return map[string]any{
		"type": "object", "properties": properties, "required": required, "additionalProperties": false,
	}
}
