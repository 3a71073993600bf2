/* What XLA does to call a handler, by the public C interface: jaxlib has the header. */

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "xla/ffi/api/c_api.h"

struct XLA_FFI_Error {
  std::string message;
  XLA_FFI_Error_Code code;
};

namespace {

using Context = decltype(XLA_FFI_CallFrame::ctx);  // versions name its type differently

XLA_FFI_Error *create_error(XLA_FFI_Error_Create_Args *arguments) {
  return new XLA_FFI_Error{arguments->message, arguments->errc};
}

XLA_FFI_Error *get_stream(XLA_FFI_Stream_Get_Args *arguments) {
  arguments->stream = reinterpret_cast<void *>(arguments->ctx);
  return nullptr;
}

XLA_FFI_Api interface() {
  XLA_FFI_Api api{};
  api.struct_size = XLA_FFI_Api_STRUCT_SIZE;
  api.api_version = {XLA_FFI_Api_Version_STRUCT_SIZE, nullptr, XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR};
  api.XLA_FFI_Error_Create = create_error;
  api.XLA_FFI_Stream_Get = get_stream;
  return api;
}

const XLA_FFI_Api api = interface();

XLA_FFI_CallFrame frame(void *stream) {
  XLA_FFI_CallFrame frame{};
  frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  frame.api = &api;
  frame.ctx = reinterpret_cast<Context>(stream);
  frame.stage = XLA_FFI_ExecutionStage_EXECUTE;
  frame.args.struct_size = XLA_FFI_Args_STRUCT_SIZE;
  frame.rets.struct_size = XLA_FFI_Rets_STRUCT_SIZE;
  frame.attrs.struct_size = XLA_FFI_Attrs_STRUCT_SIZE;
  return frame;
}

int code_of(XLA_FFI_Error *error, char *text, size_t room) {
  if (!error) return 0;
  const int code = error->code;
  text[error->message.copy(text, room - 1)] = '\0';
  delete error;
  return code;
}

}  // namespace

extern "C" {

// Gives the error's code, 0 for none, and its text. Buffers are addresses and bytes, arguments before results.
int call(XLA_FFI_Handler *handler, void *stream, const char *kernels, int64_t *numbers, int64_t count,
         void *const *addresses, int64_t *bytes, int64_t arguments, int64_t results, char *text, int64_t room) {
  std::vector<XLA_FFI_Buffer> buffers(size_t(arguments + results), XLA_FFI_Buffer{});
  std::vector<void *> places;
  for (size_t i = 0; i < buffers.size(); ++i) {
    buffers[i] = {XLA_FFI_Buffer_STRUCT_SIZE, nullptr, XLA_FFI_DataType_U8, addresses[i], 1, &bytes[i]};
    places.push_back(&buffers[i]);
  }
  std::vector<XLA_FFI_ArgType> argument_types(size_t(arguments), XLA_FFI_ArgType_BUFFER);
  std::vector<XLA_FFI_RetType> result_types(size_t(results), XLA_FFI_RetType_BUFFER);
  XLA_FFI_CallFrame own = frame(stream);
  own.args.size = arguments, own.args.types = argument_types.data(), own.args.args = places.data();
  own.rets.size = results, own.rets.types = result_types.data(), own.rets.rets = places.data() + arguments;

  const std::string text_of_kernels = kernels;
  XLA_FFI_ByteSpan lines{text_of_kernels.data(), text_of_kernels.size()};
  XLA_FFI_Array launches{XLA_FFI_DataType_S64, size_t(count), numbers};
  XLA_FFI_AttrType types[] = {XLA_FFI_AttrType_STRING, XLA_FFI_AttrType_ARRAY};
  XLA_FFI_ByteSpan names[] = {{"kernels", 7}, {"launches", 8}};
  XLA_FFI_ByteSpan *pointers[] = {&names[0], &names[1]};
  void *values[] = {&lines, &launches};
  own.attrs.size = 2, own.attrs.types = types, own.attrs.names = pointers, own.attrs.attrs = values;
  return code_of(handler(&own), text, size_t(room));
}

// The traits that a handler declares; negative: the code of an error.
int64_t traits(XLA_FFI_Handler *handler) {
  XLA_FFI_Metadata metadata{};
  metadata.struct_size = XLA_FFI_Metadata_STRUCT_SIZE;
  XLA_FFI_Metadata_Extension extension{};
  extension.extension_base.struct_size = XLA_FFI_Metadata_Extension_STRUCT_SIZE;
  extension.extension_base.type = XLA_FFI_Extension_Metadata;
  extension.metadata = &metadata;
  XLA_FFI_CallFrame own = frame(nullptr);
  own.extension_start = &extension.extension_base;
  char text[8];
  const int code = code_of(handler(&own), text, sizeof text);
  return code ? -code : int64_t(metadata.traits);
}
}
