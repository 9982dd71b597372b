package watched

import (
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A kind is one whose objects are decoded here.
type kind struct {
	gvk      schema.GroupVersionKind
	resource string
	new      func() client.Object
}

// newSerializer returns the serializer of a client that watches objects of a kind. Whatever is no such object, and what cannot be decoded, is left to client-go.
func newSerializer(d *decoder) runtime.NegotiatedSerializer { return &negotiated{d.codecs, d} }

// negotiated has the formats that a client and a server can agree on.
type negotiated struct {
	serializer.WithoutConversionCodecFactory

	decoder *decoder
}

// SupportedMediaTypes returns the formats of client-go, where events in JSON are found and split here.
func (n *negotiated) SupportedMediaTypes() []runtime.SerializerInfo {
	all := n.WithoutConversionCodecFactory.SupportedMediaTypes()
	for i := range all {
		if all[i].MediaType == runtime.ContentTypeJSON {
			stream := *all[i].StreamSerializer
			stream.Serializer, stream.Framer = splitter{stream.Serializer}, framer{stream.Framer}
			all[i].StreamSerializer = &stream
		}
	}
	return all
}

// DecoderToVersion returns the decoder of the objects. It keeps what kind an object is of, as the clients of controller-runtime do.
func (n *negotiated) DecoderToVersion(runtime.Decoder, runtime.GroupVersioner) runtime.Decoder {
	return n.decoder
}

// loose are the options for what contains objects: what is wrong with an object is for Decode.
var loose = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// A framer finds the values of a stream.
type framer struct{ runtime.Framer }

// NewFrameReader returns a reader of which each Read returns one value, or as much of it as there is space for, and io.ErrShortBuffer.
func (framer) NewFrameReader(stream io.ReadCloser) io.ReadCloser {
	return &frames{Closer: stream, input: jsontext.NewDecoder(stream, loose)}
}

type frames struct {
	io.Closer
	input *jsontext.Decoder
	// left is what has not been returned of the last value.
	left []byte
}

func (f *frames) Read(data []byte) (n int, err error) {
	if len(f.left) == 0 {
		f.left, err = f.input.ReadValue()
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return 0, io.ErrUnexpectedEOF // client-go compares it by ==, and then watches on instead of listing everything again
		}
		if err != nil {
			return 0, err
		}
	}
	n = copy(data, f.left)
	if f.left = f.left[n:]; len(f.left) > 0 {
		return n, io.ErrShortBuffer
	}
	return n, nil
}

// An event is where the object of a watch event is.
type event struct {
	Type   string `json:"type"`
	Object part   `json:"object"`
}

// A part is a part of the input of a decoder.
type part struct{ from, to int64 }

// UnmarshalJSONFrom notes the value that comes next.
func (p *part) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	value, err := d.ReadValue()
	p.to = d.InputOffset()
	p.from = p.to - int64(len(value))
	return err
}

// A splitter decodes watch events.
type splitter struct{ runtime.Serializer }

// Decode does not copy the object of an event: the next decoder is done with it before the next event is read, and all types copy what they keep of it.
func (s splitter) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	result, is := into.(*metav1.WatchEvent)
	if !is {
		return s.Serializer.Decode(data, defaults, into)
	}
	var found event
	if err := json.Unmarshal(data, &found, loose); err != nil || found.Object.to == 0 {
		return s.Serializer.Decode(data, defaults, into)
	}
	result.Type, result.Object.Raw = found.Type, data[found.Object.from:found.Object.to]
	return result, defaults, nil
}

// withoutManagedFields skips the managed fields of objects, which the cache does not keep.
var withoutManagedFields = json.WithUnmarshalers(json.UnmarshalFromFunc(func(d *jsontext.Decoder, _ *[]metav1.ManagedFieldsEntry) error {
	if d.StackDepth() > inMetadata {
		return errors.ErrUnsupported // those of a pod template are decoded as all else
	}
	return d.SkipValue()
}))

// inMetadata is how deep the metadata of an object are.
const inMetadata = 2

// A decoder decodes objects of one kind, without their managed fields, and leaves all others to client-go. It transforms each object at once, so that those of a
// list do not all take the memory that they have before.
type decoder struct {
	kind      kind
	codecs    serializer.WithoutConversionCodecFactory
	standard  runtime.Decoder
	transform toolscache.TransformFunc
}

// newDecoder returns the decoder of a kind. The transform may be nil.
func newDecoder(scheme *runtime.Scheme, k kind, transform toolscache.TransformFunc) *decoder {
	codecs := serializer.NewCodecFactory(scheme)
	return &decoder{k, serializer.WithoutConversionCodecFactory{CodecFactory: codecs}, codecs.UniversalDeserializer(), transform}
}

// Decode returns an object, also if it is not of the kind.
func (d *decoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	var object runtime.Object = d.kind.new()
	gvk := &d.kind.gvk
	if err := json.Unmarshal(data, object, withoutManagedFields); err != nil || into != nil || object.GetObjectKind().GroupVersionKind() != d.kind.gvk {
		if object, gvk, err = d.standard.Decode(data, defaults, into); err != nil {
			return object, gvk, err
		}
	}
	if d.transform == nil || *gvk != d.kind.gvk {
		return object, gvk, nil
	}
	transformed, err := d.transform(object)
	if err != nil {
		return nil, gvk, err
	}
	object, is := transformed.(runtime.Object)
	if !is {
		return nil, gvk, fmt.Errorf("transformed into a %T, which is no object", transformed)
	}
	return object, gvk, nil
}

// decodeList decodes a list while it arrives.
func (d *decoder) decodeList(stream io.Reader) (*metainternalversion.List, error) {
	list := &metainternalversion.List{}
	input := jsontext.NewDecoder(stream, loose)
	err := eachMember(input, func(name string) error {
		switch name {
		case "metadata":
			return json.UnmarshalDecode(input, &list.ListMeta)
		case "items":
			return eachElement(input, func(data jsontext.Value) error {
				object, _, err := d.Decode(data, &d.kind.gvk, nil)
				list.Items = append(list.Items, object)
				return err
			})
		default:
			return input.SkipValue()
		}
	})
	if err == nil && list.ResourceVersion == "" {
		err = errors.New("it has no resourceVersion")
	}
	if err != nil {
		return nil, fmt.Errorf("decode the list of %s: %w", d.kind.resource, err)
	}
	return list, nil
}

// eachMember calls a function for the name of each member of an object. The function reads the value.
func eachMember(input *jsontext.Decoder, read func(name string) error) error {
	if err := expect(input, jsontext.KindBeginObject); err != nil {
		return err
	}
	for input.PeekKind() == jsontext.KindString {
		name, err := input.ReadToken()
		if err != nil {
			return err
		}
		if err := read(name.String()); err != nil {
			return err
		}
	}
	return expect(input, jsontext.KindEndObject)
}

// eachElement calls a function for each element of an array, or of null, which has none. The function must not keep it.
func eachElement(input *jsontext.Decoder, read func(jsontext.Value) error) error {
	if input.PeekKind() == jsontext.KindNull {
		return input.SkipValue()
	}
	if err := expect(input, jsontext.KindBeginArray); err != nil {
		return err
	}
	for kind := input.PeekKind(); kind != jsontext.KindEndArray && kind != jsontext.KindInvalid; kind = input.PeekKind() {
		value, err := input.ReadValue()
		if err != nil {
			return err
		}
		if err := read(value); err != nil {
			return err
		}
	}
	return expect(input, jsontext.KindEndArray)
}

// expect reads the next token, which must be of a kind.
func expect(input *jsontext.Decoder, kind jsontext.Kind) error {
	token, err := input.ReadToken()
	if err == nil && token.Kind() != kind {
		err = fmt.Errorf("%s where %s was expected", token.Kind(), kind)
	}
	return err
}
