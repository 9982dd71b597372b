package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

// A binary is the program for one platform.
type binary struct {
	os, arch string
	content  []byte
}

// build builds the program for all platforms with the flags of the Dockerfile. It records no state of the repository, which depends on tags.
func (r *release) build(ctx context.Context, work string) ([]binary, error) {
	var all []binary
	for _, platform := range []string{"darwin/amd64", "darwin/arm64", "linux/amd64", "linux/arm64"} {
		goos, arch, _ := strings.Cut(platform, "/")
		file := filepath.Join(work, goos+"-"+arch)
		env := []string{"CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOOS=" + goos, "GOARCH=" + arch, "GOAMD64=v1", "GOARM64=v8.0"}
		_, err := output(ctx, r.program, env, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version="+r.version, "-o", file, ".")
		if err != nil {
			return nil, err
		}
		content, err := os.ReadFile(file) // #nosec G304 -- written above
		if err != nil {
			return nil, err
		}
		all = append(all, binary{goos, arch, content})
	}
	return all, nil
}

// billOf returns the modules of a binary, as the Go tool recorded them, in the format CycloneDX.
func (r *release) billOf(b binary) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(b.content))
	if err != nil {
		return nil, err
	}
	program := componentOf(cyclonedx.ComponentTypeApplication, info.Main.Path, r.version)
	library := componentOf(cyclonedx.ComponentTypeLibrary, "std", strings.TrimPrefix(info.GoVersion, "go"))
	components := []cyclonedx.Component{library}
	for _, module := range info.Deps {
		component, err := moduleOf(module)
		if err != nil {
			return nil, err
		}
		components = append(components, component)
	}
	bill := cyclonedx.NewBOM()
	bill.Metadata = &cyclonedx.Metadata{Component: &program, Properties: &[]cyclonedx.Property{
		{Name: "goos", Value: b.os}, {Name: "goarch", Value: b.arch}, {Name: "revision", Value: r.commit.revision()},
	}}
	bill.Components = &components
	var text bytes.Buffer
	err = cyclonedx.NewBOMEncoder(&text, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bill)
	return text.Bytes(), err
}

// moduleOf returns a module with its checksum: that of go.sum is a SHA-256 in base64.
func moduleOf(module *debug.Module) (cyclonedx.Component, error) {
	if module.Replace != nil {
		module = module.Replace
	}
	component := componentOf(cyclonedx.ComponentTypeLibrary, module.Path, module.Version)
	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(module.Sum, "h1:"))
	if err != nil {
		return component, fmt.Errorf("read the checksum %q of %s: %w", module.Sum, module.Path, err)
	}
	component.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
	return component, nil
}

func componentOf(kind cyclonedx.ComponentType, path, version string) cyclonedx.Component {
	url := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	return cyclonedx.Component{BOMRef: url, Type: kind, Name: path, Version: version, PackageURL: url}
}
