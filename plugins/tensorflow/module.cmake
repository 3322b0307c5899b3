horo_plugin(tensorflow)
