// Command protoc-gen-bundle is a protoc plugin that prints the given protos with their comments.
// Before it calls the plugin, buf removes the options that plain protoc has no file for, so the
// output imports only protoc's own files. The parameter copy=FILE, which may be repeated, adds a
// copy of a file to the output.
package main

import (
	"flag"
	"os"
	"path/filepath"

	"github.com/jhump/protoreflect/v2/protoprint"
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	var copies []string
	flags := flag.NewFlagSet("protoc-gen-bundle", flag.ContinueOnError)
	flags.Func("copy", "a file to add to the output", func(name string) error {
		copies = append(copies, name)
		return nil
	})
	protogen.Options{ParamFunc: flags.Set}.Run(func(p *protogen.Plugin) error {
		p.SupportedFeatures = uint64(pluginpb.CodeGeneratorResponse_FEATURE_PROTO3_OPTIONAL)
		return bundle(p, copies)
	})
}

// bundle adds every proto to generate, and a copy of each file in copies, to the output of p.
func bundle(p *protogen.Plugin, copies []string) error {
	printer := protoprint.Printer{}
	for _, f := range p.Files {
		if !f.Generate {
			continue
		}
		if err := printer.PrintProtoFile(f.Desc, p.NewGeneratedFile(f.Desc.Path(), "")); err != nil {
			return err
		}
	}
	for _, name := range copies {
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if _, err := p.NewGeneratedFile(filepath.Base(name), "").Write(content); err != nil {
			return err
		}
	}
	return nil
}
